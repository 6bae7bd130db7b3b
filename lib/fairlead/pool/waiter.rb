# frozen_string_literal: true

module Fairlead
  class Pool
    # A fiber that waits in a {WaitQueue}. Each waiter sleeps on a signal of its own, so a handover wakes exactly the
    # waiter it is meant for: a thread sleeps as such, a fiber under a scheduler yields to its siblings.
    #
    # The pool writes the handover to its table of holders before it wakes the waiter. A waiter that is killed in
    # between already owns the place, and passes it on.
    #
    # @api private
    class Waiter
      # @return [Fiber] who waits, and the thread of that fiber.
      attr_reader :fiber, :thread
      # @return [Float] monotonic seconds: the time of arrival.
      attr_reader :since

      def initialize(since, signal = SIGNAL.new)
        @fiber = ::Fiber.current
        @thread = ::Thread.current
        @since = since
        @signal = signal
      end

      # @return [Float] the waiter with the lowest rank is the next one.
      def rank = @since

      # Called by the waiter, without the pool's lock. May return early; may raise what is raised in the waiter.
      #
      # @param seconds [Float] the longest time to sleep.
      def wait(seconds) = @signal.wait(seconds)

      # Called by any thread or fiber, without the pool's lock. Never blocks.
      def wake = @signal.set

      # @return [Boolean] whether it can never take what is handed to it: its thread has ended without ending
      #   its fiber.
      def gone? = !@thread.alive? || !@fiber.alive?
    end

    # A queue of one. Since Ruby 3.2 it can wait for a limited time.
    class QueueSignal
      def initialize = @queue = ::Thread::Queue.new
      def wait(seconds) = @queue.pop(timeout: seconds)
      def set = @queue.push(true)
    end

    # The same for Ruby 3.1, and so for JRuby 9.4.
    class ConditionSignal
      def initialize
        @mutex = ::Thread::Mutex.new
        @condition = ::Thread::ConditionVariable.new
        @set = false
      end

      # On Ruby 3.1, a fiber that is cancelled in here does not get the lock back, as it does on later ones.
      def wait(seconds)
        @mutex.lock
        @condition.wait(@mutex, seconds) unless @set
      ensure
        @mutex.unlock if @mutex.owned?
      end

      # Spins under a scheduler: a fiber that is switched here can be cancelled, and would leave the waiter asleep.
      def set
        if Pool.scheduler?
          ::Thread.pass until @mutex.try_lock
        else
          @mutex.lock
        end
        @set = true
        @condition.signal
      ensure
        @mutex.unlock if @mutex.owned?
      end
    end

    SIGNAL = RUBY_VERSION >= "3.2" ? QueueSignal : ConditionSignal
    private_constant :QueueSignal, :ConditionSignal, :SIGNAL
  end
end
