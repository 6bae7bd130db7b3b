# frozen_string_literal: true

module Fairlead
  class Pool
    # A pool's places: who holds which, which are free, and who stands in the line for one. What must change in one
    # step changes in here:
    #
    # - While a place is free, nobody waits. A newcomer that finds one free passes nobody by.
    # - A place given back while somebody waits becomes the oldest waiter's: the table of holders says so before the
    #   waiter knows.
    #
    # All of it under one lock, which is held for moments, never while waiting, connecting or closing, and taken
    # without ever switching the fiber: there is no point at which a cancelled fiber could leave halfway. None of the
    # user's code is called in here. Where nothing else is said, interrupts are deferred while the lock is held.
    class Places
      # @return [Integer] how often all connections have been replaced: older ones are not kept.
      attr_reader :generation
      # @return [Proc, nil] what is done with older ones.
      attr_reader :close
      # @return [Float] monotonic seconds: when somebody last looked for holders that have ended.
      attr_reader :recovered

      # @param size [Integer] how many there are, from the pool's start to its end.
      # @param max_waiting [Integer, nil] how many may stand in the line.
      # @param called [String] what errors call the pool.
      def initialize(size, max_waiting, called)
        @size = size
        @max_waiting = max_waiting
        @called = called
        @generation = 0
        @shut_down = false
        @close = nil
        begin_anew
      end

      # In the child of a fork, where only the calling fiber is left: nobody holds anything, nobody waits.
      #
      # @return [Array<Place>] those that were used, with the parent's connections.
      def forget_all
        used = @idle + @holders.values
        begin_anew
        used
      end

      # In the child of a fork: what was idle, and what this fiber holds, stays.
      def keep_own
        begin_anew(@idle, @holders[::Fiber.current])
      end

      # Without the lock: each fiber looks only for its own.
      #
      # @return [Place, nil] what the fiber holds.
      def [](fiber)
        @holders[fiber]
      end

      # @return [Integer] how many have not been taken.
      def available
        @size - @holders.size
      end

      # @return [Integer] how many are free and have a connection.
      def idle
        @idle.size
      end

      # @return [Integer] how many are held.
      def held
        @holders.size
      end

      # @return [Integer] how many stand in the line.
      def waiting
        @line.size
      end

      def shut_down?
        @shut_down
      end

      # A free place for the fiber, which has none; else it stands in the line afterwards. The caller has deferred
      # interrupts.
      #
      # @return [Place, nil] with a connection; nil if the fiber has to wait for its turn, or to connect.
      # @raise [PoolShuttingDownError]
      # @raise [FullError]
      def take(fiber)
        @lock.try_lock || lock_contended
        begin
          if (place = @idle.last)
            hold(place, fiber)
            @holders[fiber] = @idle.pop
          elsif (place = @room.last)
            hold(place, fiber)
            @holders[fiber] = @room.pop
            nil
          else
            join_line(fiber)
            nil
          end
        ensure
          @lock.unlock
        end
      end

      # @return [Waiter, nil] as which the fiber stands in the line.
      def waiter(fiber)
        exclusively { @line[fiber] }
      end

      # @return [Place, nil] what was handed over before it could leave.
      def leave_line(fiber)
        exclusively { @line.delete(fiber) ? nil : @holders[fiber] }
      end

      # Leaves the line as one whose time is over.
      #
      # @return [Array(Place, Integer)] what was handed over at the last moment, or nil; and how many waited, the
      #   fiber among them.
      def give_up(fiber)
        exclusively do
          waiting = @line.size
          @timeouts += 1 if @line.delete(fiber)
          [@holders[fiber], waiting]
        end
      end

      # Gives a place to the oldest waiter, or to those that are free. The caller has deferred interrupts.
      #
      # @param owner [Fiber, Place] who holds it: a fiber, or, as {#occupy} has it, the place itself.
      # @return [Boolean] false if nothing has been done, since its connection is not to be kept.
      def pass_on(place, owner)
        @lock.try_lock || lock_contended
        begin
          # Looked at under the lock: a reload or shutdown has either seen it among the idle or is seen here.
          return false if place.connected && (place.discard || place.generation != @generation || @shut_down)

          waiter = settle(place, owner)
        ensure
          @lock.unlock
        end
        waiter.wake if waiter
        true
      end

      # All connections there are now are of an earlier generation from now on.
      #
      # @param close [Proc] what is to be done with them.
      # @param shut_down [Boolean] whether there are to be no others; then all who wait are told so.
      # @return [Array<Place>] the idle ones, occupied.
      def retire(close, shut_down:)
        waiters = []
        places = exclusively do
          @close = close
          @generation += 1
          if (@shut_down ||= shut_down)
            @room.clear
            waiters = @line.values
            @line.clear
          end
          @idle.each { |place| occupy(place) }
          @idle.slice!(0..-1)
        end
        waiters.each(&:wake)
        places
      end

      # @return [Array<Place>] those idle for longer, occupied.
      def occupy_idle(idle_seconds)
        exclusively do
          now = clock
          count = @idle.index { |place| now - place.since <= idle_seconds } || @idle.size
          @idle.shift(count).each { |place| occupy(place) }
        end
      end

      # @return [Array<Place>] those whose holders have ended without giving them back, occupied.
      def occupy_abandoned
        exclusively do
          @recovered = clock
          @holders.select { |owner, place| !owner.equal?(place) && place.abandoned? }.map do |owner, place|
            @holders.delete(owner)
            occupy(place)
          end
        end
      end

      # @return [Array<Array(Fiber, Thread, Float)>] who holds places, and since when.
      def holders
        exclusively { snapshot }
      end

      # @return [Array(Hash, Array)] figures as of one moment, and {#holders}.
      def stat(now)
        exclusively do
          holders = snapshot
          oldest = @line.each_value.first
          figures = {
            size: @size, in_use: holders.size, idle: @idle.size, waiting: @line.size,
            oldest_wait: oldest ? now - oldest.since : 0.0, timeouts: @timeouts, waits: @waits.to_h,
            holds: @holds.to_h
          }
          [figures, holders]
        end
      end

      def clock
        ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
      end

      private

      # @param idle [Array<Place>] with their connections.
      # @param held [Place, nil] the one that this fiber holds.
      def begin_anew(idle = [], held = nil)
        @lock = ::Thread::Mutex.new
        @holders = Holders.build
        @holders[::Fiber.current] = held if held
        @line = {}.compare_by_identity # fiber => waiter, the oldest first
        @idle = idle # the longest idle first; the last one is taken
        @room = ::Array.new(@shut_down ? 0 : @size - @idle.size - @holders.size) { Place.new }
        @recovered = 0.0
        @timeouts = 0
        @waits = Histogram.new
        @holds = Histogram.new
      end

      # Under the lock: all that can be said about it before it is held.
      def hold(place, fiber)
        place.fiber = fiber
        place.thread = ::Thread.current
        place.depth = 1
        place.since = clock
      end

      # Under the lock: counts as held, by itself, until it is passed on.
      def occupy(place)
        hold(place, ::Fiber.current)
        @holders[place] = place
      end

      # Under the lock.
      def join_line(fiber)
        raise PoolShuttingDownError, "#{@called} was shut down" if @shut_down

        if @max_waiting && @line.size >= @max_waiting
          raise FullError, "#{@line.size} wait already for a connection of #{@called}, and no more may " \
            "(max_waiting); #{@holders.size} of #{@size} are in use"
        end
        @line[fiber] = Waiter.new(fiber, clock)
      end

      # Under the lock.
      #
      # @return [Waiter, nil] whom to wake: it holds the place now.
      def settle(place, owner)
        now = clock
        @holds.add(now - place.since) unless owner.equal?(place)
        waiter = next_waiter unless @line.empty?
        place.since = now
        if waiter
          @waits.add(now - waiter.since)
          place.fiber = waiter.fiber
          place.thread = waiter.thread
          @holders[waiter.fiber] = place
        else
          place.fiber = place.thread = nil
          (place.connected ? @idle : @room).push(place) unless @shut_down
        end
        @holders.delete(owner)
        waiter
      end

      # Under the lock: the oldest one that is still there, out of the line.
      def next_waiter
        while (entry = @line.shift)
          waiter = entry.last
          return waiter unless waiter.gone?
        end
      end

      # Under the lock.
      def snapshot
        @holders.each_value.map { |place| [place.fiber, place.thread, place.since] }
      end

      # The block runs under the lock, and is not interrupted.
      def exclusively
        ::Thread.handle_interrupt(NEVER) do
          @lock.try_lock || lock_contended
          begin
            yield
          ensure
            @lock.unlock
          end
        end
      end

      # A fiber under a scheduler must not be switched here, since whoever is switched can be cancelled. Another
      # thread has the lock, and only for a moment.
      def lock_contended
        if @lock.owned?
          raise ::ThreadError, "#{@called} was entered from a signal handler or a finalizer that interrupted it"
        elsif Pool.scheduler?
          ::Thread.pass until @lock.try_lock
        else
          @lock.lock
        end
      end
    end
    private_constant :Places
  end
end
