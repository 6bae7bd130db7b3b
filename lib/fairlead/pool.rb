# frozen_string_literal: true

require "fiber" unless Fiber.respond_to?(:current)
require_relative "version"

module Fairlead
  # Defined before its parts open it: else they would have it loaded again.
  class Pool; end
end

require_relative "pool/errors"
require_relative "pool/histogram"
require_relative "pool/holders"
require_relative "pool/place"
require_relative "pool/report"
require_relative "pool/waiter"
require_relative "pool/wrapper"
require_relative "pool/fork"

module Fairlead
  # A pool of connections, or of anything scarce, for threads and fibers: strictly first come, first served.
  #
  # Whoever gives a connection back hands it to the oldest waiter; nobody who comes later can take it first, the
  # giver included. A waiter that gives up, is killed or cancelled leaves the line and loses nothing: what was
  # handed to it at that moment goes to the next.
  #
  # It answers the API of the connection_pool gem. A connection belongs to the fiber that checked it out (to the
  # thread, where there are no others), and to it alone: nested calls get the same one.
  #
  # How it holds together:
  # - While a place is free, nobody waits. Both are changed under one lock, so a newcomer that finds a place
  #   free passes nobody by.
  # - A place given back while somebody waits becomes the oldest waiter's in the same step: the table of holders
  #   says so before the waiter knows. Its own `ensure` then gives it back if it cannot use it.
  # - Room for a new connection is handed over like a connection. Whoever gets it connects, without the lock.
  # - The lock is held for moments, never while waiting, connecting or closing, and taken without ever switching
  #   the fiber: there is no point at which a cancelled fiber could leave halfway.
  #
  # @example
  #   pool = Fairlead::Pool.new(size: 5, timeout: 2) { Redis.new }
  #   pool.with { |redis| redis.get("key") }
  class Pool
    # Thread#raise, Thread#kill and Timeout wait. Frozen and by identity, so that Ruby need not copy it.
    NEVER = { ::Object => :never }.compare_by_identity.freeze
    # They come only while blocked, not between a connection's making and its being put away.
    ON_BLOCKING = { ::Object => :on_blocking }.compare_by_identity.freeze
    # Whoever has to wait looks every so many seconds for holders that have ended, unless somebody else has
    # just done so; in a long line more seldom, so that about ten a second look.
    LOOK = 1.0
    RECOVERY = 0.1
    private_constant :NEVER, :ON_BLOCKING, :LOOK, :RECOVERY

    # @return [Wrapper] an object that takes a connection for each call.
    def self.wrap(**options, &block)
      Wrapper.new(**options, &block)
    end

    # @return [Integer] how many connections there may be.
    attr_reader :size

    # @return [String, nil] what errors call the pool.
    attr_reader :name

    # @param size [Integer] how many connections there may be. Each is made when it is needed.
    # @param timeout [Numeric, nil] seconds to wait for one; nil waits for ever.
    # @param max_waiting [Integer, nil] how many may wait; who comes then gets a {FullError} at once.
    # @param auto_reload_after_fork [Boolean] whether the child of a fork makes connections of its own. Those
    #   that it inherited get `discard!`, or else `close`, where they have it.
    # @param name [String, nil] what errors call the pool.
    # @yieldreturn [Object] a new connection. Called without a lock, by whoever needs it.
    def initialize(timeout: 5, size: 5, auto_reload_after_fork: true, name: nil, max_waiting: nil, &create)
      raise ::ArgumentError, "Fairlead::Pool.new needs a block that makes a connection" unless create

      @size = Integer(size)
      raise ::ArgumentError, "size is #{@size}; it must be at least 1" unless @size.positive?

      @timeout = timeout && Float(timeout)
      @max_waiting = max_waiting && Integer(max_waiting)
      @name = name
      @create = create
      @auto_reload_after_fork = auto_reload_after_fork
      @generation = 0
      @shut_down = false
      @close = nil
      begin_anew
      POOLS[self] = true if POOLS
    end

    # Runs the block with a connection, and gives it back. The fiber that has one already gets the same.
    #
    # @param timeout [Numeric, nil] seconds to wait; nil waits for ever.
    # @param exception [Class, false] what to raise when the time is over; false yields nil instead.
    # @yieldparam connection [Object]
    # @return what the block returns.
    # @raise [TimeoutError] when the time is over.
    # @raise [FullError] when `max_waiting` wait already.
    # @raise [PoolShuttingDownError] when the pool was shut down.
    def with(timeout: @timeout, exception: TimeoutError, &block)
      fiber = ::Fiber.current
      return with_same(fiber, &block) if @holders[fiber]

      begin
        place = ::Thread.handle_interrupt(NEVER) { take(fiber) } || obtain(fiber, timeout, exception)
        yield(place && place.connection)
      ensure
        ::Thread.handle_interrupt(NEVER) { give_back(fiber) }
      end
    end
    alias then with

    # Takes a connection, to be given back with {#checkin} by the same fiber, as often as it was taken. Prefer
    # {#with}: what interrupts the caller between this method and its own `ensure` leaves the connection out.
    #
    # @param (see #with)
    # @return [Object, nil] the connection; nil only with `exception: false`.
    # @raise (see #with)
    def checkout(timeout: @timeout, exception: TimeoutError)
      fiber = ::Fiber.current
      if (place = @holders[fiber])
        place.depth += 1
        return place.connection
      end

      finished = false
      begin
        place = ::Thread.handle_interrupt(NEVER) { take(fiber) } || obtain(fiber, timeout, exception)
        finished = true
        place && place.connection
      ensure
        ::Thread.handle_interrupt(NEVER) { give_back(fiber) } unless finished
      end
    end

    # Gives back what {#checkout} took.
    #
    # @param force [Boolean] give it back even if it was taken several times; no error if nothing was taken.
    # @return [nil]
    # @raise [Error] when this fiber holds no connection.
    def checkin(force: false)
      fiber = ::Fiber.current
      place = @holders[fiber]
      if place
        place.depth = 1 if force
        ::Thread.handle_interrupt(NEVER) { give_back(fiber) }
      elsif !force
        raise Error, "no connections are checked out"
      end
      nil
    end

    # Says that this fiber's connection is not to be kept: at check-in, the block gets it instead, and its place
    # becomes room for a new one, which goes to the oldest waiter. Without a connection, nothing happens.
    #
    # @yieldparam connection [Object] to be closed; errors in there are ignored.
    def discard_current_connection(&block)
      place = @holders[::Fiber.current]
      place.discard = block || proc { |connection| connection } if place
      nil
    end

    # Ends the pool: idle connections go to the block at once, those in use when they come back. Who waits, or
    # comes, gets a {PoolShuttingDownError}.
    #
    # @yieldparam connection [Object] to be closed.
    def shutdown(&block)
      raise ::ArgumentError, "shutdown must receive a block" unless block

      retire(block, shut_down: true)
    end

    # Replaces all connections: idle ones go to the block at once, those in use when they come back. New ones
    # are made when they are needed.
    #
    # @yieldparam connection [Object] to be closed.
    def reload(&block)
      raise ::ArgumentError, "reload must receive a block" unless block

      retire(block, shut_down: false)
    end

    # Removes the connections that have been idle for long, and takes away those whose fiber or thread has ended
    # without giving them back: the oldest waiters get their places.
    #
    # @param idle_seconds [Numeric]
    # @yieldparam connection [Object] to be closed.
    # @raise [PoolShuttingDownError] when the pool was shut down.
    def reap(idle_seconds: 60, &block)
      raise ::ArgumentError, "reap must receive a block" unless block
      raise ::ArgumentError, "idle_seconds must be a number" unless idle_seconds.is_a?(::Numeric)
      raise PoolShuttingDownError, "#{self} was shut down" if @shut_down

      recover_abandoned(block)
      ::Thread.handle_interrupt(NEVER) { close_all(exclusively { reserve_idle(idle_seconds) }, block) }
    end

    # @return [Integer] how many connections can be taken at this moment without waiting, made or not yet.
    def available
      @size - @holders.size
    end

    # @return [Integer] how many connections there are that nobody uses.
    def idle
      @idle.size
    end

    # @return [Integer] how many wait at this moment.
    def waiting
      @line.size
    end

    # What the pool does now, and has done since its start.
    #
    # @param backtraces [Boolean] whether to add where each holder is now; that costs some time.
    # @return [Hash] `{ size:, in_use:, idle:, waiting:, oldest_wait:, timeouts:, waits:, holds:, holders: }`;
    #   times in seconds. `waits` counts those who had to wait and were served, `holds` all that came back; each
    #   is `{ count:, sum:, max:, buckets: { upper bound => count } }`. `holders`, the longest first, are
    #   `{ fiber:, thread:, seconds:[, backtrace:] }`.
    def stat(backtraces: false)
      now = clock
      holders = nil
      stat = exclusively do
        holders = snapshot
        oldest = @line.each_value.first
        {
          size: @size, in_use: holders.size, idle: @idle.size, waiting: @line.size,
          oldest_wait: oldest ? now - oldest.since : 0.0, timeouts: @timeouts, waits: @waits.to_h,
          holds: @holds.to_h
        }
      end
      stat.merge(holders: Report.holders(holders, now, backtraces: backtraces))
    end

    # @return [String]
    def to_s
      @name ? "the pool #{@name.inspect}" : "the pool"
    end

    # @return [String]
    def inspect
      "#<#{self.class}#{" #{@name.inspect}" if @name} size=#{@size} in_use=#{@holders.size} idle=#{idle} " \
        "waiting=#{waiting}>"
    end

    # In the child of a fork: only the calling fiber is left, and no thread waits.
    #
    # @api private
    def forked
      fiber = ::Fiber.current
      idle = @idle
      held = @holders.values
      if @auto_reload_after_fork
        begin_anew
        (idle + held).each { |place| abandon(place.vacate) if place.connected }
      else
        begin_anew(idle, @holders[fiber])
      end
    end

    private

    def clock
      ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
    end

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

    # A free place for the fiber, which has none; else it stands in the line afterwards.
    # Interrupts are deferred.
    #
    # @return [Place, nil] nil if there is something left to do: see {#obtain}.
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

    # Under the lock: all that can be said about it before it is held.
    def hold(place, fiber)
      place.fiber = fiber
      place.thread = ::Thread.current
      place.depth = 1
      place.since = clock
    end

    # Under the lock.
    def join_line(fiber)
      raise PoolShuttingDownError, "#{self} was shut down" if @shut_down

      if @max_waiting && @line.size >= @max_waiting
        raise FullError, "#{@line.size} wait already for a connection of #{self}, and no more may " \
          "(max_waiting); #{@holders.size} of #{@size} are in use"
      end
      @line[fiber] = Waiter.new(fiber, clock)
    end

    # The fiber stands in the line or holds room for a new connection. Waits for its turn, connects.
    #
    # @return [Place, nil] nil only if the time is over and no exception wanted.
    def obtain(fiber, timeout, exception)
      place = @holders[fiber] || wait_for_turn(fiber, timeout, exception)
      connect(place) if place && !place.connected
      place
    end

    # An interrupt that comes when the connection is made, but not put away yet, is raised once it is. Masks
    # belong to threads: where fibers take turns while they connect, there is none.
    def connect(place)
      return connect_now(place) if scheduler?

      ::Thread.handle_interrupt(ON_BLOCKING) { connect_now(place) }
    end

    def connect_now(place)
      place.generation = @generation
      place.connection = @create.call
      place.connected = true
    end

    def wait_for_turn(fiber, timeout, exception)
      waiter = exclusively { @line[fiber] }
      deadline = waiter.since + timeout if waiter && timeout
      loop do
        place = @holders[fiber] and return place
        raise PoolShuttingDownError, "#{self} was shut down" if @shut_down

        now = clock
        nap = LOOK * (1 + @line.size / 10)
        remaining = deadline ? deadline - now : nap
        return give_up(fiber, timeout, exception) if remaining <= 0

        recover_abandoned if now - @recovered > RECOVERY
        waiter.wait(remaining < nap ? remaining : nap)
      end
    end

    # @return [Place, nil] what was handed over at the last moment, or what those left who have ended.
    def give_up(fiber, timeout, exception)
      recover_abandoned
      waiting = nil
      place = exclusively do
        waiting = @line.size
        @timeouts += 1 if @line.delete(fiber)
        @holders[fiber]
      end
      return place if place || !exception

      raise exception, timeout_message(timeout, waiting)
    end

    # @param waiting [Integer] with the one who gives up.
    def timeout_message(timeout, waiting)
      holders = exclusively { snapshot }
      "waited #{format("%.3g", timeout)} s for a connection of #{self}: #{holders.size} of #{@size} are in " \
        "use, #{waiting} waited, #{Report.sentence(holders, clock)}. Hold them for less time, give the pool " \
        "more (size: #{@size}), or wait longer (timeout: #{format("%.3g", timeout)})"
    end

    # Under the lock.
    def snapshot
      @holders.each_value.map { |place| [place.fiber, place.thread, place.since] }
    end

    # Nested: the same connection once more.
    def with_same(fiber)
      place = @holders[fiber]
      counted = false
      begin
        counted = (place.depth += 1)
        yield place.connection
      ensure
        ::Thread.handle_interrupt(NEVER) { give_back(fiber) } if counted
      end
    end

    # Gives back whatever the fiber has: its place, once for each time that it was taken, or its place in the
    # line; nothing if it has neither. Interrupts are deferred; nothing in here switches the fiber, but for a
    # connection that must be closed.
    def give_back(owner)
      place = @holders[owner] || leave_line(owner) or return
      place.depth > 1 ? place.depth -= 1 : pass_on(place, owner)
    end

    # @return [Place, nil] what was handed over before it could leave.
    def leave_line(fiber)
      exclusively { @line.delete(fiber) ? nil : @holders[fiber] }
    end

    # To the oldest waiter, or to those that are free.
    def pass_on(place, owner)
      worn = waiter = nil
      @lock.try_lock || lock_contended
      begin
        # Looked at under the lock: a reload or shutdown has either seen it among the idle or is seen here.
        worn = place.connected && (place.discard || place.generation != @generation)
        waiter = settle(place, owner) unless worn
      ensure
        @lock.unlock
      end
      return pass_on_without_connection(place, owner) if worn

      waiter.wake if waiter
    end

    # The place counts as held until its connection is closed: there are never more than the size allows.
    def pass_on_without_connection(place, owner)
      dispose(place)
    ensure
      pass_on(place, owner)
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

    # Closing may take long, and may be interrupted.
    #
    # @return [StandardError, nil] what was raised.
    def dispose(place)
      close = place.discard || @close
      connection = place.vacate
      ::Thread.handle_interrupt(ON_BLOCKING) { close.call(connection) }
      nil
    rescue ::StandardError => error
      error
    end

    # Ends all idle connections, and those in use when they come back.
    def retire(close, shut_down:)
      ::Thread.handle_interrupt(NEVER) do
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
        close_all(places, close)
      end
    end

    # Each is closed and its place given back, also when closing another one raises: the first error is raised
    # in the end. Interrupts are deferred, except while closing; if one comes, the rest is dropped unclosed.
    #
    # @param places [Array<Place>] occupied ones.
    def close_all(places, close)
      error = nil
      while (place = places.shift)
        begin
          if place.connected
            place.discard = close
            failed = dispose(place)
            error ||= failed
          end
        ensure
          pass_on(place, place)
        end
      end
      raise error if error
    ensure
      places.each do |left|
        left.vacate
        pass_on(left, left)
      end
    end

    # Under the lock.
    #
    # @return [Array<Place>] those idle for longer; they count as held from now on.
    def reserve_idle(idle_seconds)
      now = clock
      count = @idle.index { |place| now - place.since <= idle_seconds } || @idle.size
      @idle.shift(count).each { |place| occupy(place) }
    end

    # Under the lock: counts as held, by itself, until it is passed on.
    def occupy(place)
      hold(place, ::Fiber.current)
      @holders[place] = place
    end

    # Places whose holders have ended without giving them back. Their connections are in an unknown state and
    # are not used again.
    def recover_abandoned(close = method(:close_quietly))
      ::Thread.handle_interrupt(NEVER) do
        places = exclusively do
          @recovered = clock
          @holders.select { |owner, place| !owner.equal?(place) && place.abandoned? }.map do |owner, place|
            @holders.delete(owner)
            occupy(place)
          end
        end
        close_all(places, close)
      end
    end

    def close_quietly(connection)
      connection.close if connection.respond_to?(:close)
    rescue ::StandardError
      nil
    end

    # In the child of a fork, where the parent still uses it.
    def abandon(connection)
      connection.respond_to?(:discard!) ? connection.discard! : close_quietly(connection)
    rescue ::StandardError
      nil
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
        raise ::ThreadError, "#{self} was entered from a signal handler or a finalizer that interrupted it"
      elsif scheduler?
        ::Thread.pass until @lock.try_lock
      else
        @lock.lock
      end
    end

    def scheduler?
      ::Fiber.respond_to?(:current_scheduler) && ::Fiber.current_scheduler
    end
  end
end
