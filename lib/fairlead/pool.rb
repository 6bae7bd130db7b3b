# frozen_string_literal: true

require "fiber" unless Fiber.respond_to?(:current)
require_relative "pool/version"

module Fairlead
  # Defined before its parts open it: else they would have it loaded again.
  class Pool
    VERSION = POOL_VERSION
  end
end

require_relative "pool/errors"
require_relative "pool/histogram"
require_relative "pool/holders"
require_relative "pool/place"
require_relative "pool/places"
require_relative "pool/removal"
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
  # - Who holds what and who is next changes in one step, under one lock, in {Places}. What is handed over is the
  #   waiter's before it knows; its own `ensure` then gives it back if it cannot use it.
  # - Room for a new connection is handed over like a connection. Whoever gets it connects, without the lock.
  # - What is not to be kept is closed before its place is passed on, in {Removal}.
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

    # @api private
    # @return [Boolean] whether fibers take turns in this thread.
    def self.scheduler?
      ::Fiber.respond_to?(:current_scheduler) && !::Fiber.current_scheduler.nil?
    end

    # @return [Integer] how many connections there may be.
    attr_reader :size

    # @return [String, nil] what errors call the pool.
    attr_reader :name

    # @return [Boolean] whether the child of a fork makes connections of its own.
    attr_reader :auto_reload_after_fork

    # @param size [Integer] how many connections there may be. Each is made when it is needed. 0: every checkout times out.
    # @param timeout [Numeric, nil] seconds to wait for one; nil waits for ever.
    # @param max_waiting [Integer, nil] how many may wait; who comes then gets a {FullError} at once.
    # @param auto_reload_after_fork [Boolean] whether the child of a fork makes connections of its own. Those
    #   that it inherited get `discard!`, or else `close`, where they have it.
    # @param name [String, nil] what errors call the pool.
    # @yieldreturn [Object] a new connection. Called without a lock, by whoever needs it.
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

    # Runs the block with what {#checkout} returns, and gives it back. The fiber that has a connection already gets the same.
    #
    # @param options [Hash] see {#checkout}. A subclass may take options of its own there.
    # @yieldparam connection [Object]
    # @return what the block returns.
    # @raise [TimeoutError] when the time is over.
    # @raise [FullError] when `max_waiting` wait already.
    # @raise [PoolShuttingDownError] when the pool was shut down.
    def with(**options)
      fiber = ::Fiber.current
      place = @places[fiber]
      depth = place ? place.depth : 0
      begin
        yield checkout(**options)
      ensure
        # Not what an outer call has taken. An interrupt may come between checkout and block: only the books say who has what.
        ::Thread.handle_interrupt(NEVER) { give_back(fiber) if place.nil? || place.depth > depth }
      end
    end
    alias then with

    # Takes a connection, to be given back with {#checkin} by the same fiber, as often as it was taken. Prefer
    # {#with}: what interrupts the caller between this method and its own `ensure` leaves the connection out.
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

    # Says that this fiber's connection is not to be kept: at check-in, the block gets it instead, and its place
    # becomes room for a new one, which goes to the oldest waiter. Without a connection, nothing happens.
    #
    # @yieldparam connection [Object] to be closed; errors in there are ignored.
    def discard_current_connection(&block)
      place = @places[::Fiber.current]
      place.discard = block || proc { |connection| connection } if place
      nil
    end

    # Ends the pool: idle connections go to the block at once, those in use when they come back. Who waits, or
    # comes, gets a {PoolShuttingDownError}.
    #
    # @yieldparam connection [Object] to be closed.
    def shutdown(&block)
      raise ::ArgumentError, "shutdown must receive a block" unless block

      @removal.retire(block, shut_down: true)
    end

    # Replaces all connections: idle ones go to the block at once, those in use when they come back. New ones
    # are made when they are needed.
    #
    # @yieldparam connection [Object] to be closed.
    def reload(&block)
      raise ::ArgumentError, "reload must receive a block" unless block

      @removal.retire(block, shut_down: false)
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
      raise PoolShuttingDownError, "#{self} was shut down" if @places.shut_down?

      @removal.recover_abandoned(block)
      @removal.reap(idle_seconds, block)
    end

    # @return [Integer] how many connections can be taken at this moment without waiting, made or not yet.
    def available
      @places.available
    end

    # @return [Integer] how many connections there are that nobody uses.
    def idle
      @places.idle
    end

    # @return [Integer] how many wait at this moment.
    def waiting
      @places.waiting
    end

    # What the pool does now, and has done since its start.
    #
    # @param backtraces [Boolean] whether to add where each holder is now; that costs some time.
    # @return [Hash] `{ size:, in_use:, idle:, waiting:, oldest_wait:, timeouts:, waits:, holds:, holders: }`;
    #   times in seconds. `waits` counts those who had to wait and were served, `holds` all that came back; each
    #   is `{ count:, sum:, max:, buckets: { upper bound => count } }`. `holders`, the longest first, are
    #   `{ fiber:, thread:, seconds:[, backtrace:] }`.
    def stat(backtraces: false)
      now = @places.clock
      figures, holders = @places.stat(now)
      figures.merge(holders: Report.holders(holders, now, backtraces: backtraces))
    end

    # @return [String]
    def to_s
      @name ? "the pool #{@name.inspect}" : "the pool"
    end

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

    # The fiber stands in the line or holds room for a new connection. Waits for its turn, connects.
    #
    # @return [Place, nil] nil only if the time is over and no exception wanted.
    def obtain(fiber, timeout, exception)
      place = @places[fiber] || wait_for_turn(fiber, timeout, exception)
      connect(place) if place && !place.connected
      place
    end

    # An interrupt that comes when the connection is made, but not put away yet, is raised once it is. Masks
    # belong to threads: where fibers take turns while they connect, there is none.
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

        now = @places.clock
        nap = LOOK * (1 + @places.waiting / 10)
        remaining = deadline ? deadline - now : nap
        return give_up(fiber, timeout, exception) if remaining <= 0

        @removal.recover_abandoned if now - @places.recovered > RECOVERY
        waiter.wait(remaining < nap ? remaining : nap)
      end
    end

    # @return [Place, nil] what was handed over at the last moment, or what those left who have ended.
    def give_up(fiber, timeout, exception)
      @removal.recover_abandoned
      place, waiting = @places.give_up(fiber)
      return place if place || !exception

      raise exception, timeout_message(timeout, waiting)
    end

    # @param waiting [Integer] with the one who gives up.
    def timeout_message(timeout, waiting)
      holders = @places.holders
      "waited #{format("%.3g", timeout)} s for a connection of #{self}: #{holders.size} of #{@size} are in " \
        "use, #{waiting} waited, #{Report.sentence(holders, @places.clock)}. Hold them for less time, give the " \
        "pool more (size: #{@size}), or wait longer (timeout: #{format("%.3g", timeout)})"
    end

    # Gives back whatever the fiber has: its place, once for each time that it was taken, or its place in the
    # line; nothing if it has neither. Interrupts are deferred; nothing in here switches the fiber, but for a
    # connection that must be closed.
    def give_back(owner)
      place = @places[owner] || @places.leave_line(owner) or return
      if place.depth > 1
        place.depth -= 1
      elsif !@places.pass_on(place, owner)
        @removal.pass_on(place, owner)
      end
    end
  end
end
