# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # How many connections a pool should open while requests wait for one: not all it may, just because it may.
    #
    # The first ones are opened as they are needed. Beyond these, a pool grows by a half at a time, and looks whether
    # connections come back more often now. If they do not, then database, network or CPU can do no more: connections
    # above that number only make each query slower. The pool goes back to what it had, and tries again later.
    #
    # Under the pool's lock; it knows no pool and no clock.
    class Growth
      # So many are opened without a look at the figures.
      FREELY = 32
      # How many may be connecting at the same time, beside as many as are connected: it costs both sides CPU.
      CONNECTING = 8
      # How long to count what comes back, in seconds, and what share of a half more must be seen of a half more
      # connections. Queries that take longer than this tell nothing: then it goes on.
      WINDOW = 0.1
      GAIN = 0.2
      # In so many windows one after the other: whatever else the machine does may spoil one.
      IN_VAIN = 2
      # Seconds until it tries again: twice as many after each time in vain, up to the most.
      REST = 4.0
      LONGEST_REST = 64.0

      # @return [Integer] how many connections it would do without.
      attr_reader :surplus

      def initialize
        @returned = 0
        @since = nil
        @size = 0
        @rested_at = 0.0
        @before = nil # the size before the last growth, and how often connections came back then
        @in_vain = 0
        @rest = REST
        @surplus = 0
      end

      # A connection has come back.
      def returned = @returned += 1

      # One of the surplus has been closed.
      def closed = @surplus -= 1

      # @param size [Integer] connections, open or not yet.
      # @param connecting [Integer] of them, those that are not open yet.
      # @param wanted [Integer] how many wait.
      # @param now [Float]
      # @return [Integer] how many more to open.
      def step(size, connecting, wanted, now)
        most = [CONNECTING, size - connecting].max - connecting
        return [wanted, most].min.clamp(0, FREELY) if size < FREELY
        return 0 if connecting.positive? || @surplus.positive?

        begin_window(size, now) if @size != size || @since.nil? || now - @since > 3 * WINDOW
        return 0 if now - @since < WINDOW || now < @rested_at

        weigh(size, wanted, now)
      end

      private

      def begin_window(size, now)
        @size = size
        @since = now
        @returned = 0
      end

      def weigh(size, wanted, now)
        rate = @returned / (now - @since)
        telling = @returned >= size
        begin_window(size, now)
        if telling && in_vain?(size, rate)
          return (@in_vain += 1) < IN_VAIN ? 0 : fall_back(size, now)
        end
        @rest = REST if @before && telling
        @in_vain = 0
        @before = [size, rate] if telling
        [wanted, size / 2].min
      end

      def in_vain?(size, rate)
        return false unless @before && @before[0] < size

        rate < @before[1] * (1 + GAIN * (size.fdiv(@before[0]) - 1))
      end

      def fall_back(size, now)
        @surplus = size - @before[0]
        @before = nil
        @in_vain = 0
        @rested_at = now + @rest
        @rest = [@rest * 2, LONGEST_REST].min
        0
      end
    end
  end
end
