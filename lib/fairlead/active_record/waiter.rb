# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # One that waits for a connection of a pool, and what it sleeps on: a fiber in its scheduler, where nothing but the fiber
    # is needed for it, anybody else on a condition variable.
    #
    # Every method is called under the pool's lock.
    class Waiter
      # @return [Fiber, Thread] who waits.
      attr_reader :context
      # @return [Float] of the monotonic clock: when it came.
      attr_reader :since
      # @return [Float] for which the line may stand still.
      attr_reader :seconds
      # @return [Symbol, nil] :to_take a connection, or :to_open one.
      attr_accessor :called
      # @return [Boolean] whether it has tried to open one when its time was over.
      attr_accessor :tried
      # @return [#block, nil] the scheduler in which it sleeps.
      attr_reader :scheduler

      # For a blocking fiber that a request has made: those that have the connections may be fibers of its thread.
      #
      # @return [Scheduler, nil]
      def self.scheduler_of_request
        scheduler = ::Fiber.scheduler
        scheduler if scheduler.respond_to?(:hand_on) && FiberOwner.current.async_task
      end

      def initialize(context, since, seconds)
        @context = context
        @since = since
        @seconds = seconds
        @scheduler = ::Fiber.current_scheduler || Waiter.scheduler_of_request
        @fiber = @scheduler && ::Fiber.current
        @sleeping = false
        @called = @tried = nil
      end

      # Sleeps without the lock, until {#signal}, or for so long. To be called by the lock, which is told of it so.
      #
      # @param mutex [Thread::Mutex] the lock's own.
      # @param seconds [Float, nil]
      def wait(mutex, seconds)
        return (@condition ||= ::Thread::ConditionVariable.new).wait(mutex, seconds) unless @scheduler

        @sleeping = true
        mutex.unlock
        begin
          @scheduler.block(self, seconds)
        ensure
          @sleeping = false
          # Without it, the lock would be taken for this fiber's, and never be free again.
          mutex.try_lock || Uninterruptible.run { mutex.lock }
        end
      end

      # ActiveRecord's queue says so to what it gives; this one is to open a connection.
      def lease = nil

      # Wakes it up.
      def signal
        return @condition&.signal unless @scheduler
        return unless @sleeping

        @sleeping = false
        direct? ? @scheduler.hand_on(@fiber) : @scheduler.unblock(self, @fiber)
      end

      private

      # Whether who signals is a fiber of the same thread, and the scheduler is Fairlead's.
      def direct? = @scheduler.equal?(::Fiber.scheduler) && @scheduler.respond_to?(:hand_on)
    end
  end
end
