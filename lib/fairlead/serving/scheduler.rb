# frozen_string_literal: true

require "async"
require "async/scheduler"
require_relative "selector"
require_relative "wait_sampler"
require_relative "../fiber_safety/file_lock"
require_relative "../fiber_safety/attributes"
require_relative "../fiber_safety/uninterruptible"
require_relative "../fiber_safety/mutex_sleep"
require_relative "../fiber_safety/containment"
require_relative "../fiber_safety/closed_io"
require_relative "../fiber_safety/request_times"
require_relative "../fiber_safety/shared_files"

# Reads of a fiber use an IO::Buffer. Ruby warns when a process makes its first one.
Warning[:experimental].then do |before|
  Warning[:experimental] = false
  IO::Buffer.new(1) if defined?(IO::Buffer)
ensure
  Warning[:experimental] = before
end

module Fairlead
  # Async's scheduler, made for fibers that outlive a request.
  class Scheduler < Async::Scheduler
    include ServingScheduler

    # A wake-up for one wait of a fiber. If that wait has ended by then, by a timeout for example, the wake-up is dropped: it would
    # end the fiber's next wait, in another request.
    Wakeup = Struct.new(:fiber, :waits) do
      # io-event's queue asks before each transfer.
      #
      # @return [Boolean] whether the fiber is still in that wait.
      def alive? = fiber.fairlead_waits == waits && fiber.alive?

      def transfer(*) = fiber.transfer
    end

    def initialize(loop, group)
      @group = group
      @cancelled_all = @forked = false
      @failures = 0
      super(nil, selector: Selector.new(Fiber.current, loop))
      @selector.sampler = @sampler = WaitSampler.new(self, loop)
    end

    # @return [Selector]
    attr_reader :selector

    # (see ReactorGroup#await)
    def await(request, &) = @group.await(request, &)

    # (see ReactorGroup#wake)
    def wake(id) = @group.wake(id)

    # Gives other fibers their turn. In other threads than the scheduler's, Ruby does.
    def give_way = (self.yield if ::Fiber.scheduler.equal?(self))

    # Lets other fibers go on first.
    def yield = (stream = current_stream) ? @selector.turns.await(stream) : super

    # A read that follows has consumed nothing yet: the fiber may be interrupted while it waits for its turn.
    def io_wait(io, events, timeout = nil)
      serving = ServingFiber.of(Fiber.current)
      queue = @selector.turns.queue_of(serving) if serving&.request
      ready = super
      queue&.await(serving)
      ready
    end

    # Seconds for which a request may hold connections before its age no longer counts: else old ones that need a connection again and
    # again would keep it among themselves.
    FREE_HOLD = 1
    private_constant :FREE_HOLD

    # Asked of a fiber that waits for a connection.
    #
    # @return [Float, nil] when the present request came, of Clock.now. A stream has none: it may have come hours before all others, and
    #   would always be the first.
    def rank
      serving = ServingFiber.of(Fiber.current)
      request = serving&.request
      request.rank(Float::INFINITY) if request && !serving.stream? && request.held < FREE_HOLD
    end

    # The present fiber has given a connection back.
    #
    # @param seconds [Float] for which it was held
    def note_hold(seconds)
      request = ServingFiber.request_of(Fiber.current)
      request.held += seconds if request
    end

    # @return [Boolean] whether any fiber waits for anything but requests, or can go on.
    def others? = @blocked.positive? || @selector.waiting.positive? || @selector.turns.queued? || @selector.ready?

    # The share of CPU that the thread has used since the last call. Async measures each round instead, which costs a lone request
    # more than the round itself.
    #
    # @return [Float] between 0 and 1
    def load
      now, busy = Clock.now, Clock.thread_cpu
      before, busy_before = @load_asked || [now, busy]
      @load_asked = [now, busy]
      now > before ? ((busy - busy_before) / (now - before)).clamp(0.0, 1.0) : 0.0
    end

    # @return [Boolean] whether all tasks have been cancelled, since the reactor ends.
    def cancelled_all? = @cancelled_all

    # A task whose parent is the scheduler may stop its parent, but not the server; nor may another thread.
    def cancel(...)
      return if ::Async::Task.current? || !equal?(::Fiber.scheduler)

      @cancelled_all = true
      super
    end

    # Calls the block in the scheduler's own fiber, where it must not wait.
    #
    # @param seconds [Numeric]
    def after(seconds, &) = @timers.after(seconds, &)

    # Seconds between two checks of a fiber that Ruby does not wake.
    CHECK = 0.002
    # Seconds that no thread can sleep.
    LONGEST = 2**63
    # After so many failed rounds in a row the reactor gives up.
    MOST_FAILURES = 100
    # Ruby's own text, where it knows that the fibers belong to one thread.
    DEADLOCK = "deadlock; lock already owned by another fiber belonging to the same thread"
    private_constant :CHECK, :LONGEST, :MOST_FAILURES, :DEADLOCK

    # A fiber that closes an IO sleeps until the threads that use the IO have let go. Ruby then wakes the fiber's thread only, so
    # the fiber checks again by itself. All others that sleep without an end are woken.
    def kernel_sleep(duration = nil)
      close = Fiber.current.fairlead_close unless duration
      duration &&= seconds(duration)
      close ? close.without_interruption { block(nil, CHECK) } : block(nil, duration)
    end

    # To be called once the scheduler is set: Ruby 4 warns if it has no fiber_interrupt by then. Later Ruby would call it for
    # fibers whose IO is closed, and keep track of each wait for an IO. ClosedIO interrupts them on every version.
    def disable_fiber_interrupt = (singleton_class.undef_method(:fiber_interrupt) if respond_to?(:fiber_interrupt))

    # (see NameLookup.resolve)
    def address_resolve(hostname) = RequestTimes.during(RequestTimes::SOCKET) { NameLookup.resolve(hostname) }

    # Async's locks wait here.
    def transfer
      counted = RequestTimes.wait(kind = Fiber.current.fairlead_waits_for || RequestTimes::LOCK, nil)
      @sampler.arm if counted
      super
    ensure
      RequestTimes.waited(kind) if counted
    end

    # In the child of a fork, the fibers of its parent do not go on.
    def process_fork
      @forked = true
      Thread.current.fairlead_serves = false
      super
    end

    def scheduler_close(...) = (super unless @forked)

    # Called by Timeout. Code that computes gets the exception at its end: in between, it may hold what others need.
    #
    # @raise [Exception] also if the block has not waited since its time was up.
    def timeout_after(duration, exception, message, &)
      ends = Clock.now + duration
      result = super
      raise_late(exception, message) if Clock.now >= ends && (resumed = @selector.loop.resumed_at) && resumed < ends
      result
    end

    # @param blocker [Object, nil] not to be called: the lock of a `require` is an object without a class.
    def block(blocker, timeout)
      fiber = Fiber.current
      no_task = Uninterruptible.plain?(fiber)
      ::Kernel.raise ::ThreadError, DEADLOCK if no_task && FiberOwner.deadlock?(blocker)

      timeout = nil if timeout == Float::INFINITY # for which Queue#pop and Thread#join wait in a thread
      fiber.fairlead_woken = false
      plain = (Thread.current.fairlead_plain_waits ||= []).push(fiber) if no_task
      kind = fiber.fairlead_waits_for || (timeout && nil.equal?(blocker) ? RequestTimes::SLEEP : RequestTimes::LOCK)
      counted = RequestTimes.wait(kind, timeout)
      @sampler.arm if counted
      serving = ServingFiber.of(fiber)
      return super unless serving&.request

      turn = fiber.fairlead_turn = Turn.new(@selector.turns.queue_of(serving), serving, fiber)
      timer = @timers.after(timeout) { turn.transfer(false) } if timeout
      block_until_woken
    ensure
      timer&.cancel!
      RequestTimes.waited(kind) if counted
      fiber.fairlead_woken = fiber.fairlead_turn = nil
      plain&.delete(fiber)
      wait_ended
    end

    def unblock(blocker, fiber)
      super(blocker, fiber.is_a?(Fiber) ? wakeup(fiber) : fiber)
    end

    # As {#unblock}, for a fiber of this thread that gets what the current one gives back.
    #
    # @param fiber [Fiber]
    def hand_on(fiber) = @selector.push(wakeup(fiber))

    private

    # @return [ServingFiber, nil] the stream that the present fiber works for.
    def current_stream
      serving = ServingFiber.of(Fiber.current)
      serving if serving&.stream?
    end

    # As Ruby does where no scheduler is.
    #
    # @raise [TypeError, ArgumentError, RangeError]
    def seconds(interval)
      negative = interval.negative? if interval.is_a?(Numeric)
      ::Kernel.raise TypeError, "can't convert #{interval.class} into time interval" unless interval.respond_to?(:divmod)

      seconds = interval.divmod(1).sum unless negative
      ::Kernel.raise ArgumentError, "time interval must not be negative" if negative || seconds.negative?
      ::Kernel.raise RangeError, "#{interval} out of Time range" if seconds >= LONGEST

      seconds
    end

    # As Async's {#block} does.
    def block_until_woken
      @blocked += 1
      @selector.transfer
    ensure
      @blocked -= 1
    end

    # @return [Wakeup, Turn]
    def wakeup(fiber)
      fiber.fairlead_woken = true if fiber.fairlead_woken == false
      fiber.fairlead_turn || Wakeup.new(fiber, fiber.fairlead_waits)
    end

    def wait_ended
      fiber = Fiber.current
      fiber.fairlead_waits = (fiber.fairlead_waits || 0) + 1
    end

    def run_once!(timeout = nil)
      interval = @timers.wait_interval
      interval = timeout if interval.nil? || (timeout && interval > timeout)
      @selector.select(interval&.negative? ? 0 : interval)
      @timers.fire if interval
      @failures = 0
      true
    rescue Errno::EINTR
      true
    rescue Exception => error
      contain(error)
    end

    # Async would end its loop when a signal raises an exception.
    def interrupted?
      Thread.handle_interrupt(::SignalException => :immediate) { nil } if Thread.pending_interrupt?
      return false unless @interrupted

      @interrupted = false
      true
    rescue Exception => error
      contain(error)
      retry
    end

    # What a plain fiber raises as it ends arrives in the scheduler's own fiber.
    def contain(error)
      raise error if (@failures += 1) > MOST_FAILURES

      Containment.report(self, error)
      true
    end

    # Its own `raise` takes a fiber.
    def raise_late(exception, message) = ::Kernel.raise(exception, message)
  end
end
