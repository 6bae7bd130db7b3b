# frozen_string_literal: true

module Fairlead
  class Pool
    # A pool's places: which fiber holds which place, which places are free, and who waits for one. Everything that
    # must change in one step changes in here:
    #
    # - While a place is free, nobody waits: a newcomer that takes it overtakes nobody.
    # - A place that is given back while somebody waits becomes the oldest waiter's. The table of holders says so
    #   before the waiter wakes.
    #
    # One lock guards all of it. It is held for moments, never while a fiber waits, connects or closes a connection,
    # and taking it never switches the fiber, so a cancelled fiber cannot stop halfway. The user's code is never called
    # in here. Except where stated, interrupts are deferred while the lock is held.
    class Places
      # On CRuby a fiber may read its own entry of the holders without the lock.
      PARALLEL = RUBY_ENGINE != "ruby"
      private_constant :PARALLEL

      # @return [Integer] how often all connections have been replaced: older ones are not kept.
      attr_reader :generation
      # @return [Proc, nil] what is done with older ones.
      attr_reader :close
      # @return [Float] monotonic seconds: the last search for holders that have ended.
      attr_reader :recovered

      # @param size [Integer] how many places there are.
      # @param max_waiting [Integer, nil] how many fibers may wait.
      # @param pool_name [String] what errors call the pool.
      def initialize(size, max_waiting, pool_name)
        @size = size
        @max_waiting = max_waiting
        @pool_name = pool_name
        @generation = 0
        @shut_down = false
        @close = nil
        reset
      end

      # In the child of a fork, where only the calling fiber is left: nobody holds a place, nobody waits.
      #
      # @return [Array<Place>] those that were used, with the parent's connections.
      def forget_all
        used = @idle + @holders.values
        reset
        used
      end

      # In the child of a fork: idle places, and the one that this fiber holds, stay.
      def keep_own = reset(@idle, @holders[::Fiber.current])

      # @return [Place, nil] what the fiber, which is the calling one, holds.
      def [](fiber) = PARALLEL ? exclusively { @holders[fiber] } : @holders[fiber]

      # @return [Integer] places that nobody holds.
      def available = @size - @holders.size

      # @return [Integer] places that are free and have a connection.
      def idle = @idle.size

      # @return [Integer]
      def held = @holders.size

      # @return [Integer] fibers that wait.
      def waiting = @queue.size

      def shut_down? = @shut_down

      # Takes a free place for the fiber, which has none, or puts the fiber into the wait queue. The caller has deferred
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
            enqueue
            nil
          end
        ensure
          @lock.unlock
        end
      end

      # @return [Waiter, nil] the fiber's entry in the wait queue.
      def waiter(fiber) = exclusively { @queue[fiber] }

      # @return [Place, nil] what was handed over before the fiber could leave the queue.
      def leave_queue(fiber) = exclusively { @queue.delete(fiber) ? nil : @holders[fiber] }

      # Takes the fiber, whose time is over, out of the queue.
      #
      # @return [Array(Place, Integer)] what was handed over at the last moment, or nil; and how many waited,
      #   including the fiber.
      def expire(fiber)
        exclusively do
          waiting = @queue.size
          @timeouts += 1 if @queue.delete(fiber)
          [@holders[fiber], waiting]
        end
      end

      # Gives a place to the oldest waiter, or makes it free. The caller has deferred interrupts.
      #
      # @param owner [Fiber, Place] who holds it: a fiber, or, after {#occupy}, the place itself.
      # @return [Boolean] false, with nothing done, if its connection is not to be kept.
      def pass_on(place, owner)
        @lock.try_lock || lock_contended
        begin
          # Checked under the lock: a reload or shutdown either finds the place among the idle ones or is noticed here.
          return false if place.connected && (place.discard || place.generation != @generation || @shut_down)

          waiter = settle(place, owner)
        ensure
          @lock.unlock
        end
        waiter.wake if waiter
        true
      end

      # Makes all present connections those of an earlier generation.
      #
      # @param close [Proc] what is to be done with them.
      # @param shut_down [Boolean] whether there will be no others; wakes all waiters then.
      # @return [Array<Place>] the idle ones, occupied.
      def retire(close, shut_down:)
        waiters = []
        places = exclusively do
          @close = close
          @generation += 1
          if (@shut_down ||= shut_down)
            @room.clear
            waiters = @queue.to_a
            @queue = WaitQueue.new
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
          now = Pool.clock
          count = @idle.index { |place| now - place.since <= idle_seconds } || @idle.size
          @idle.shift(count).each { |place| occupy(place) }
        end
      end

      # @return [Array<Place>] those whose holders have ended without giving them back, occupied.
      def occupy_abandoned
        exclusively do
          @recovered = Pool.clock
          @holders.select { |owner, place| !owner.equal?(place) && place.abandoned? }.map do |owner, place|
            @holders.delete(owner)
            occupy(place)
          end
        end
      end

      # @return [Array<Array(Fiber, Thread, Float)>] who holds places, and since when.
      def holders = exclusively { snapshot }

      # @return [Array(Hash, Array)] figures as of one moment, and {#holders}.
      def stat(now)
        exclusively do
          holders = snapshot
          oldest = @queue.oldest
          figures = {
            size: @size, in_use: holders.size, idle: @idle.size, waiting: @queue.size,
            oldest_wait: oldest ? now - oldest.since : 0.0, timeouts: @timeouts, waits: @waits.to_h,
            holds: @holds.to_h
          }
          [figures, holders]
        end
      end

      private

      # @param idle [Array<Place>] with their connections.
      # @param held [Place, nil] the one that this fiber holds.
      def reset(idle = [], held = nil)
        @lock = ::Thread::Mutex.new
        @holders = {}.compare_by_identity
        @holders[::Fiber.current] = held if held
        @queue = WaitQueue.new
        @idle = idle # the longest idle first; the last one is taken
        @room = ::Array.new(@shut_down ? 0 : @size - @idle.size - @holders.size) { Place.new }
        @recovered = 0.0
        @timeouts = 0
        @waits = Histogram.new
        @holds = Histogram.new
      end

      # Under the lock. Fills in the place before the table of holders names it.
      def hold(place, fiber)
        place.fiber = fiber
        place.thread = ::Thread.current
        place.depth = 1
        place.since = Pool.clock
      end

      # Under the lock. The place counts as held, by itself, until it is passed on.
      def occupy(place)
        hold(place, ::Fiber.current)
        @holders[place] = place
      end

      # Under the lock.
      def enqueue
        raise PoolShuttingDownError, "#{@pool_name} was shut down" if @shut_down

        if @max_waiting && @queue.size >= @max_waiting
          raise FullError, "cannot wait for a connection of #{@pool_name}: #{@queue.size} wait already, the most that " \
            "max_waiting allows; #{@holders.size} of #{@size} are in use"
        end
        @queue.push(Waiter.new(Pool.clock))
      end

      # Under the lock.
      #
      # @return [Waiter, nil] who holds the place now, and has to be woken.
      def settle(place, owner)
        now = Pool.clock
        @holds.add(now - place.since) unless owner.equal?(place)
        waiter = @queue.shift unless @queue.empty?
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

      # Under the lock.
      def snapshot = @holders.each_value.map { |place| [place.fiber, place.thread, place.since] }

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

      # Spins under a scheduler: a fiber that is switched here can be cancelled. Another thread holds the lock, and only
      # for a moment.
      def lock_contended
        if @lock.owned?
          raise ::ThreadError, "#{@pool_name} was entered from a signal handler or a finalizer that interrupted it"
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
