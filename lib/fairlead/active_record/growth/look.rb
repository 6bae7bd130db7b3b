# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    class Growth
      # How often connections of a pool of one size come back while its process is at work.
      class Look
        # @return [Integer] connections; windows seen; and of these the last ones in which no more waited than there were.
        attr_reader :size, :windows, :few

        def initialize(size)
          @size = size
          @windows = @few = @returned = 0
          @seconds = 0.0
        end

        def add(returned, seconds, wanted)
          @windows += 1
          @few = wanted > @size ? 0 : @few + 1
          @returned += returned
          @seconds += seconds
        end

        def rate = @returned / @seconds

        # @param seconds [Float] that it takes to open more.
        # @return [Boolean] whether it may take that time.
        def affords?(seconds) = seconds <= [TRIFLE, SHARE * @seconds].max
      end
    end
  end
end
