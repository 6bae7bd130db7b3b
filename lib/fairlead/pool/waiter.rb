# frozen_string_literal: true

module Fairlead
  class Pool
    # One who stands in the line. Each waits for a signal of its own: whoever hands something over wakes exactly
    # the one that gets it. A thread waits as such, a fiber under a scheduler yields to its siblings.
    #
    # What was handed over is not in here but in the pool's table of holders, written before the signal: a
    # waiter that is killed between the two owns it all the same, and passes it on.
    class Waiter
      # @return [Fiber] who waits, and the thread of that fiber.
      attr_reader :fiber, :thread
      # @return [Float] monotonic seconds: since when.
      attr_reader :since

      def initialize(fiber, since)
        @fiber = fiber
        @thread = ::Thread.current
        @since = since
        @signal = SIGNAL.new
      end

      # Called by the waiter, without the pool's lock. May return early; may raise what is raised in the waiter.
      #
      # @param seconds [Float] at most so long.
      def wait(seconds)
        @signal.wait(seconds)
      end

      # Called by anybody, without the pool's lock. Never blocks.
      def wake
        @signal.set
      end

      # @return [Boolean] whether it can never take what is handed to it: its thread has ended without ending
      #   its fiber.
      def gone?
        !@thread.alive? || !@fiber.alive?
      end
    end

    # A queue of one. Since Ruby 3.2 it can wait for a limited time.
    class QueueSignal
      def initialize
        @queue = ::Thread::Queue.new
      end

      def wait(seconds)
        @queue.pop(timeout: seconds)
      end

      def set
        @queue.push(true)
      end
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

      # A fiber under a scheduler is not switched: cancelled here, it would leave the waiter asleep.
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
    private_constant :Waiter, :QueueSignal, :ConditionSignal, :SIGNAL
  end
end
