# frozen_string_literal: true

module Fairlead
  class Pool
    # Counts durations in buckets whose bounds double: 1 µs, 2 µs, 4 µs, … Written under the pool's lock; #add takes a
    # few dozen nanoseconds and allocates nothing.
    #
    # @api private
    class Histogram
      BUCKETS = 40 # the last one begins at six days

      def initialize
        @buckets = ::Array.new(BUCKETS, 0)
        @count = 0
        @sum = 0.0
        @maximum = 0.0
      end

      # @param seconds [Float]
      def add(seconds)
        bucket = (seconds * 1_000_000.0).to_i.bit_length
        bucket = BUCKETS - 1 if bucket >= BUCKETS
        @buckets[bucket] += 1
        @count += 1
        @sum += seconds
        @maximum = seconds if seconds > @maximum
      end

      # @return [Hash] `{ count:, sum:, max:, buckets: { upper bound => count } }`, times in seconds, without empty buckets.
      def to_h
        buckets = {}
        @buckets.each_with_index { |count, index| buckets[(1 << index) / 1_000_000.0] = count if count.positive? }
        { count: @count, sum: @sum, max: @maximum, buckets: buckets }
      end
    end
  end
end
