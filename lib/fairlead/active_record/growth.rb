# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # How many connections a pool should open while requests wait for one: not all it may, just because it may.
    #
    # The first ones are opened as they are needed. Beyond these, a pool grows as long as its reactor has nothing to do
    # for part of the time: one that is at work all the time answers no more requests with more connections, and to open
    # them takes it longer than hundreds of queries. It grows by that part, and by a half at most, and looks whether
    # connections come back more often now. If they do not, then database or network can do no more: connections above
    # that number only make each query slower. The pool goes back to what it had, and tries again later.
    #
    # Under the pool's lock; it knows no pool and no clock.
    class Growth
      # So many are opened without a look at the figures.
      FREELY = 32
      # How many may be connecting at the same time, beside as many as are connected: it costs both sides CPU.
      CONNECTING = 8
      # How long to look, in seconds.
      WINDOW = 0.1
      # What share of the time must be idle.
      IDLE = 0.1
      # What share of a half more must come back of a half more connections. Queries that take longer than the window tell
      # nothing: then it goes on.
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
        @idle_time = nil
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
      # @param idle_time [Float, nil] for how many seconds the reactor has had nothing to do so far; nil: not known.
      # @return [Integer] how many more to open.
      def step(size, connecting, wanted, now, idle_time = nil)
        most = [CONNECTING, size - connecting].max - connecting
        return [wanted, most].min.clamp(0, FREELY) if size < FREELY
        return 0 if connecting.positive? || @surplus.positive?

        begin_window(size, now, idle_time) if @size != size || @since.nil? || now - @since > 3 * WINDOW
        return 0 if now - @since < WINDOW || now < @rested_at

        weigh(size, wanted, now, idle_time)
      end

      private

      def begin_window(size, now, idle_time)
        @size = size
        @since = now
        @idle_time = idle_time
        @returned = 0
      end

      def weigh(size, wanted, now, idle_time)
        rate = @returned / (now - @since)
        idle = idle_time && @idle_time ? (idle_time - @idle_time) / (now - @since) : 1.0
        telling = @returned >= size
        begin_window(size, now, idle_time)
        return busy if idle < IDLE
        return (@in_vain += 1) < IN_VAIN ? 0 : fall_back(size, now) if telling && in_vain?(size, rate)

        @rest = REST if @before && telling
        @in_vain = 0
        @before = [size, rate] if telling
        [wanted, (size * [idle, 0.5].min).to_i].min
      end

      # What was before the reactor had its hands full says nothing later.
      def busy
        @before = nil
        @in_vain = 0
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
