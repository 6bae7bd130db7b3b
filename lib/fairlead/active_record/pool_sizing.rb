# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # How many connections a pool opens while requests wait for one: the first {FREELY} as they are needed, beyond that a half
    # more at a time while process and machine are idle for part of the time. Whether more connections help it does not ask.
    #
    # Under the pool's lock; it knows no pool and no clock.
    class PoolSizing
      FREELY = 64
      # How many may be connecting at the same time, beside as many as are connected: it costs both sides CPU.
      CONNECTING = 8
      # What share of the time there must be nothing to do, and for how many seconds it is looked at. With what was longer
      # ago, the look begins anew: nobody waited meanwhile.
      IDLE = 0.2
      WINDOW = 0.25
      LONGEST_WINDOW = 1.0

      # @param idle [#since_last_call]
      def initialize(idle = CpuIdle.new)
        @idle = idle
        @since = -Float::INFINITY
      end

      # @param size [Integer] connections, open or not yet.
      # @param connecting [Integer] of them, those that are not open yet.
      # @param wanted [Integer] how many requests wait.
      # @param now [Float] seconds.
      # @return [Integer] how many more to open.
      def step(size, connecting, wanted, now)
        return first_ones(size, connecting, wanted) if size < FREELY
        return 0 if connecting.positive? || !idle?(now)

        [wanted, size / 2].min
      end

      private

      def first_ones(size, connecting, wanted)
        at_once = [CONNECTING, size - connecting].max - connecting
        [wanted, at_once, FREELY - size].min.clamp(0, nil)
      end

      def idle?(now)
        seconds = now - @since
        return false if seconds < WINDOW

        @since = now
        @idle.since_last_call(now) > IDLE && seconds <= LONGEST_WINDOW
      end
    end
  end
end
