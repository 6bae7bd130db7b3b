# frozen_string_literal: true

# Fairlead::Pool, a gem of its own: a fair pool of anything.
# Called by active_record, which shares its parts, drivers and integrations.
# Calls no other room.

require "fiber" unless Fiber.respond_to?(:current)
require_relative "pool/version"

module Fairlead
  # Defined before its files open it again: Fairlead's autoload would load this file once more.
  class Pool
    VERSION = POOL_VERSION
  end
end

require_relative "pool/errors"
require_relative "pool/histogram"
require_relative "pool/place"
require_relative "pool/wait_queue"
require_relative "pool/places"
require_relative "pool/removal"
require_relative "pool/report"
require_relative "pool/waiter"
require_relative "pool/wrapper"
require_relative "pool/fork"

module Fairlead
  # A pool of connections, or of anything scarce, for threads and fibers: strictly first come, first served.
  #
  # A connection that is given back goes to the oldest waiter; no newcomer can take it first, and neither can the fiber
  # that gives it back. A waiter that times out, is killed or cancelled leaves the queue at no cost to the others: a
  # connection handed to it at that moment goes to the next waiter.
  #
  # The pool has the API of the connection_pool gem. A connection belongs to the fiber that checked it out (to the
  # thread, where there are no other fibers), and to it alone; nested calls get the same connection.
  #
  # How it works:
  # - {Places} records who holds which connection, and who is next. Both change in one step, under one lock. A connection
  #   belongs to a waiter before the waiter wakes; the waiter's own `ensure` gives it back if the waiter cannot use it.
  # - Room for a new connection is handed over like a connection. Whoever gets it connects, without the lock.
  # - {Removal} closes a connection that is not to be kept before its place is passed on.
  #
  # @example
  #   pool = Fairlead::Pool.new(size: 5, timeout: 2) { Redis.new }
  #   pool.with { |redis| redis.get("key") }
  class Pool
    # Defers Thread#raise, Thread#kill and Timeout. Frozen and by identity, so that Ruby need not copy it.
    NEVER = { ::Object => :never }.compare_by_identity.freeze
    # Lets them in only while blocked: not between creating a connection and recording it.
    ON_BLOCKING = { ::Object => :on_blocking }.compare_by_identity.freeze
    # Waiters search for holders that have ended every so many seconds, in a long queue more rarely (about ten searches
    # a second in all), and not within RECOVERY seconds of another search.
    CHECK_INTERVAL = 1.0
    RECOVERY = 0.1
    private_constant :NEVER, :ON_BLOCKING, :CHECK_INTERVAL, :RECOVERY

    # @return [Wrapper] an object that takes a connection for each call.
    def self.wrap(**options, &block) = Wrapper.new(**options, &block)

    # @api private
    # @return [Boolean] whether fibers take turns in this thread.
    def self.scheduler? = ::Fiber.respond_to?(:current_scheduler) && !::Fiber.current_scheduler.nil?

    # @api private
    # @return [Float] seconds of the monotonic clock.
    def self.clock = ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)

    # @return [Integer] how many connections there may be.
    attr_reader :size

    # @return [String, nil] what errors call the pool.
    attr_reader :name

    # @return [Boolean] whether the child of a fork makes connections of its own.
    attr_reader :auto_reload_after_fork

    # @param size [Integer] how many connections there may be. Each is made when it is needed. 0: every checkout times out.
    # @param timeout [Numeric, nil] seconds to wait for one; nil waits for ever.
    # @param max_waiting [Integer, nil] how many fibers may wait; the next one gets a {FullError} at once.
    # @param auto_reload_after_fork [Boolean] whether the child of a fork makes connections of its own. It calls
    #   `discard!`, or else `close`, on those that it inherited, where they have it.
    # @param name [String, nil] what errors call the pool.
    # @yieldreturn [Object] a new connection. Called without a lock, by the fiber that needs it.
    def initialize(timeout: 5, size: 5, auto_reload_after_fork: true, name: nil, max_waiting: nil, &create)
      raise ::ArgumentError, "Fairlead::Pool.new needs a block that makes a connection" unless create

      @size = Integer(size)
      raise ::ArgumentError, "size is #{@size}; it must not be negative" if @size.negative?

      @timeout = timeout && Float(timeout)
      @name = name
      @create = create
      @auto_reload_after_fork = auto_reload_after_fork
      @places = Places.new(@size, max_waiting && Integer(max_waiting), to_s)
      @removal = Removal.new(@places)
      Pool.track(self)
    end

    # Checks out a connection, runs the block with it, and gives it back. A fiber that has a connection gets the same one.
    #
    # @param options [Hash] see {#checkout}. A subclass may take options of its own there.
    # @yieldparam connection [Object]
    # @return what the block returns.
    # @raise [TimeoutError] when the time is over.
    # @raise [FullError] when `max_waiting` fibers wait already.
    # @raise [PoolShuttingDownError] when the pool was shut down.
    def with(**options)
      fiber = ::Fiber.current
      place = @places[fiber]
      depth = place ? place.depth : 0
      begin
        yield checkout(**options)
      ensure
        # An interrupt may have come between checkout and block, so the places say what there is to give back; what an
        # outer call has taken stays.
        ::Thread.handle_interrupt(NEVER) { give_back(fiber) if place.nil? || place.depth > depth }
      end
    end
    alias then with

    # Takes a connection. The same fiber has to give it back with {#checkin}, as often as it took it. Prefer {#with}: an
    # interrupt between this method and the caller's own `ensure` leaves the connection checked out.
    #
    # @param timeout [Numeric, nil] seconds to wait; nil waits for ever.
    # @param exception [Class, false] what to raise when the time is over; false returns nil instead.
    # @return [Object, nil] the connection; nil only with `exception: false`. Other options are ignored, as by connection_pool.
    # @raise (see #with)
    def checkout(timeout: @timeout, exception: TimeoutError, **)
      fiber = ::Fiber.current
      if (place = @places[fiber])
        place.depth += 1
        return place.connection
      end

      finished = false
      begin
        place = ::Thread.handle_interrupt(NEVER) { @places.take(fiber) } || obtain(fiber, timeout, exception)
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
      place = @places[fiber]
      if place
        place.depth = 1 if force
        ::Thread.handle_interrupt(NEVER) { give_back(fiber) }
      elsif !force
        raise Error, "no connections are checked out"
      end
      nil
    end

    # Marks this fiber's connection as not to be kept: at check-in the block gets it, and its place becomes room for a
    # new one, which goes to the oldest waiter. Does nothing if the fiber holds no connection.
    #
    # @yieldparam connection [Object] to be closed; errors in the block are ignored.
    def discard_current_connection(&block)
      place = @places[::Fiber.current]
      place.discard = block || proc { |connection| connection } if place
      nil
    end

    # Ends the pool. The block gets idle connections at once, and those in use when they come back. Waiters, and callers
    # from then on, get a {PoolShuttingDownError}.
    #
    # @yieldparam connection [Object] to be closed.
    def shutdown(&block)
      raise ::ArgumentError, "shutdown must receive a block" unless block

      @removal.remove(block) { @places.retire(block, shut_down: true) }
    end

    # Replaces all connections. The block gets idle connections at once, and those in use when they come back. New ones
    # are made when they are needed.
    #
    # @yieldparam connection [Object] to be closed.
    def reload(&block)
      raise ::ArgumentError, "reload must receive a block" unless block

      @removal.remove(block) { @places.retire(block, shut_down: false) }
    end

    # Removes connections that have been idle for long, and those whose fiber or thread has ended without giving them
    # back. Their places go to the oldest waiters.
    #
    # @param idle_seconds [Numeric]
    # @yieldparam connection [Object] to be closed.
    # @raise [PoolShuttingDownError] when the pool was shut down.
    def reap(idle_seconds: 60, &block)
      raise ::ArgumentError, "reap must receive a block" unless block
      raise ::ArgumentError, "idle_seconds must be a number" unless idle_seconds.is_a?(::Numeric)
      raise PoolShuttingDownError, "#{self} was shut down" if @places.shut_down?

      @removal.recover_abandoned(block)
      @removal.remove(block) { @places.occupy_idle(idle_seconds) }
    end

    # @return [Integer] how many connections, made or not yet, can be taken now without waiting.
    def available = @places.available

    # @return [Integer] how many connections exist that nobody holds.
    def idle = @places.idle

    # @return [Integer] how many fibers wait now.
    def waiting = @places.waiting

    # The pool's present state, and its totals since it was made.
    #
    # @param backtraces [Boolean] whether to add where each holder is now, which takes time.
    # @return [Hash] `{ size:, in_use:, idle:, waiting:, oldest_wait:, timeouts:, waits:, holds:, holders: }`;
    #   times in seconds. `waits` counts the fibers that waited and were served, `holds` all check-ins; each
    #   is `{ count:, sum:, max:, buckets: { upper bound => count } }`. `holders`, the longest first, are
    #   `{ fiber:, thread:, seconds:[, backtrace:] }`.
    def stat(backtraces: false)
      now = Pool.clock
      figures, holders = @places.stat(now)
      figures.merge(holders: Report.holders(holders, now, backtraces: backtraces))
    end

    # @return [String]
    def to_s = @name ? "the pool #{@name.inspect}" : "the pool"

    # @return [String]
    def inspect
      "#<#{self.class}#{" #{@name.inspect}" if @name} size=#{@size} in_use=#{@places.held} idle=#{idle} " \
        "waiting=#{waiting}>"
    end

    # In the child of a fork: only the calling fiber is left, and no thread waits.
    #
    # @api private
    def forked
      return @places.keep_own unless @auto_reload_after_fork

      @places.forget_all.each { |place| Removal.abandon(place.vacate) if place.connected }
    end

    private

    # The fiber is in the wait queue, or holds room for a new connection. Waits for its turn, and connects.
    #
    # @return [Place, nil] nil only if the time is over and no exception is wanted.
    def obtain(fiber, timeout, exception)
      place = @places[fiber] || wait_for_turn(fiber, timeout, exception)
      connect(place) if place && !place.connected
      place
    end

    # Defers an interrupt that arrives between creating the connection and recording it. Interrupt masks belong to
    # threads, so there is none where fibers take turns while they connect.
    def connect(place)
      return connect_now(place) if Pool.scheduler?

      ::Thread.handle_interrupt(ON_BLOCKING) { connect_now(place) }
    end

    def connect_now(place)
      place.generation = @places.generation
      place.connection = @create.call
      place.connected = true
    end

    def wait_for_turn(fiber, timeout, exception)
      waiter = @places.waiter(fiber)
      deadline = waiter.since + timeout if waiter && timeout
      loop do
        place = @places[fiber] and return place
        raise PoolShuttingDownError, "#{self} was shut down" if @places.shut_down?

        now = Pool.clock
        nap = CHECK_INTERVAL * (1 + @places.waiting / 10)
        remaining = deadline ? deadline - now : nap
        return time_out(fiber, timeout, exception) if remaining <= 0

        @removal.recover_abandoned if now - @places.recovered > RECOVERY
        waiter.wait(remaining < nap ? remaining : nap)
      end
    end

    # @return [Place, nil] what was handed over at the last moment, perhaps by a holder that has ended.
    def time_out(fiber, timeout, exception)
      @removal.recover_abandoned
      place, waiting = @places.expire(fiber)
      return place if place || !exception

      raise exception, timeout_message(timeout, waiting)
    end

    # @param waiting [Integer] including the fiber that times out.
    def timeout_message(timeout, waiting)
      holders = @places.holders
      "waited #{format("%.3g", timeout)} s for a connection of #{self}: #{holders.size} of #{@size} are in " \
        "use, #{waiting} waited, #{Report.sentence(holders, Pool.clock)}. Hold them for less time, give the " \
        "pool more (size: #{@size}), or wait longer (timeout: #{format("%.3g", timeout)})"
    end

    # Gives back the fiber's place, once for each time that the fiber took it, or takes the fiber out of the queue.
    # Interrupts are deferred; nothing in here switches the fiber, except closing a connection.
    def give_back(owner)
      place = @places[owner] || @places.leave_queue(owner) or return
      if place.depth > 1
        place.depth -= 1
      elsif !@places.pass_on(place, owner)
        @removal.pass_on(place, owner)
      end
    end
  end
end
