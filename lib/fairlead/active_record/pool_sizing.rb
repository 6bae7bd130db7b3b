# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # How many connections a pool opens while requests wait for one: up to {FREELY} as many as they need; beyond that, half as
    # many again at a time, while process and machine are idle for part of the time.
    #
    # Called under the pool's lock; knows neither the pool nor the clock.
    class PoolSizing
      FREELY = 64
      # How many may connect at the same time, or as many as are connected: connecting costs both sides CPU.
      CONNECTING = 8
      # The share of the time that must be idle, and the seconds over which it is sampled. After a longer gap, in which nobody
      # waited, sampling begins anew.
      IDLE = 0.2
      WINDOW = 0.25
      LONGEST_WINDOW = 1.0

      # @param idle [#since_last_call]
      def initialize(idle = CpuIdle.new)
        @idle = idle
        @sampled_at = -Float::INFINITY
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
        seconds = now - @sampled_at
        return false if seconds < WINDOW

        @sampled_at = now
        @idle.since_last_call(now) > IDLE && seconds <= LONGEST_WINDOW
      end
    end
  end
end
