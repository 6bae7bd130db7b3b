# frozen_string_literal: true

require "async"
require "async/scheduler"
require_relative "selector"
require_relative "../fiber_safety/file_lock"
require_relative "../fiber_safety/uninterruptible"
require_relative "../fiber_safety/containment"
require_relative "../fiber_safety/closed_io"

# How many waits of a serving fiber have ended: tells a wake-up for the present wait from one for an earlier wait.
Fiber.attr_accessor :fairlead_waits

# Reads of a fiber take an IO::Buffer, and Ruby warns of the first one of a process.
Warning[:experimental].then do |before|
  Warning[:experimental] = false
  IO::Buffer.new(1) if defined?(IO::Buffer)
ensure
  Warning[:experimental] = before
end

module Fairlead
  # Async's scheduler, made for fibers that outlive a request.
  class Scheduler < Async::Scheduler
    # A wake-up that counts only for the wait for which it was meant. Late ones (the wait has ended by a timeout, or
    # another cause) are dropped: they would end the next wait of the same fiber, in another request.
    Wakeup = Struct.new(:fiber, :waits) do
      # Asked before each transfer, by io-event's queue too.
      #
      # @return [Boolean] whether it is still that wait.
      def alive? = fiber.fairlead_waits == waits && fiber.alive?

      def transfer(*) = fiber.transfer
    end

    def initialize(loop, group)
      @group = group
      @cancelled_all = @forked = false
      @failures = 0
      super(nil, selector: Selector.new(Fiber.current, loop))
    end

    # @return [Selector]
    attr_reader :selector

    # (see ReactorGroup#await)
    def await(request) = @group.await(request)

    # Others have their turn. In another thread than the scheduler's, Ruby sees to that.
    def give_way = (self.yield if ::Fiber.scheduler.equal?(self))

    # @return [Boolean] whether any fiber waits for anything but requests.
    def others? = @blocked.positive? || @selector.waiting.positive?

    # How busy its thread has been since it was last asked. Async measures each round for it, which costs a lone request
    # more than the round itself.
    #
    # @return [Float] between 0 and 1
    def load
      now, busy = Clock.now, Clock.thread_cpu
      before, busy_before = @load_asked || [now, busy]
      @load_asked = [now, busy]
      now > before ? ((busy - busy_before) / (now - before)).clamp(0.0, 1.0) : 0.0
    end

    # @return [Boolean] whether all tasks have been cancelled: the end.
    def cancelled_all? = @cancelled_all

    # Whose parent is the scheduler may stop that, but not the server.
    def cancel(...)
      return if ::Async::Task.current?

      @cancelled_all = true
      super
    end

    # Calls the block in the loop's own fiber, where it must not wait.
    #
    # @param seconds [Numeric]
    def after(seconds, &) = @timers.after(seconds, &)

    # Seconds between two looks of a fiber that nobody wakes.
    LOOK = 0.002
    # Failures of the loop, one after the other, that are no accident.
    MOST_FAILURES = 100
    private_constant :LOOK, :MOST_FAILURES

    # A fiber that closes an IO sleeps until the threads that use the IO have let go. Ruby then wakes the fiber's thread only, so
    # the fiber looks again by itself. All others that sleep without an end are woken.
    def kernel_sleep(duration = nil)
      close = Fiber.current.fairlead_close unless duration
      return close.without_interruption { block(nil, LOOK) } if close

      super
    ensure
      wait_ended unless duration
    end

    # To be called once the scheduler is set: Ruby 4 warns if it has no fiber_interrupt by then. Later Ruby would call it for
    # fibers whose IO is closed, and keep track of each wait for an IO. ClosedIO interrupts them on every version.
    def disable_fiber_interrupt = (singleton_class.undef_method(:fiber_interrupt) if respond_to?(:fiber_interrupt))

    # (see NameLookup.resolve)
    def address_resolve(hostname) = NameLookup.resolve(hostname)

    # In the child of a fork, what waits in its parent does not go on.
    def process_fork
      @forked = true
      Thread.current.fairlead_serves = false
      super
    end

    def scheduler_close(...) = (super unless @forked)

    # Of Timeout. Code that computes is told as it ends: where it would be interrupted, it may hold what others need.
    #
    # @raise [Exception] also if the block has waited for nothing since its time was up.
    def timeout_after(duration, exception, message, &)
      ends = Clock.now + duration
      result = super
      raise_late(exception, message) if Clock.now >= ends && (resumed = @selector.loop.resumed_at) && resumed < ends
      result
    end

    def block(blocker, timeout)
      Fiber.current.fairlead_woken = false
      super
    ensure
      Fiber.current.fairlead_woken = nil
      wait_ended
    end

    def unblock(blocker, fiber)
      super(blocker, fiber.is_a?(Fiber) ? wakeup(fiber) : fiber)
    end

    # As {#unblock}, for a fiber of this thread that gets what the present one gives back. If that has to wait next, the
    # other goes on at once, and not with the loop's next round.
    #
    # @param fiber [Fiber]
    def hand_on(fiber) = @selector.wake_next(wakeup(fiber))

    private

    def wakeup(fiber)
      fiber.fairlead_woken = true if fiber.fairlead_woken == false
      Wakeup.new(fiber, fiber.fairlead_waits)
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

    # Async would end its loop for a signal's exception.
    def interrupted?
      Thread.handle_interrupt(::SignalException => :immediate) { nil } if Thread.pending_interrupt?
      return false unless @interrupted

      @interrupted = false
      true
    rescue Exception => error
      contain(error)
      retry
    end

    # The loop's own fiber gets what a plain fiber raises as it ends.
    def contain(error)
      raise error if (@failures += 1) > MOST_FAILURES

      Containment.report(self, error)
      true
    end

    # Its own `raise` takes a fiber.
    def raise_late(exception, message) = ::Kernel.raise(exception, message)
  end
end
