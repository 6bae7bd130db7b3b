# frozen_string_literal: true

require "fairlead/pool"

module Fairlead
  module ActiveRecord
    # A waiter of a {WaitQueue}. In a fiber it sleeps in the scheduler itself, which costs less than a signal; elsewhere it
    # sleeps on a condition variable.
    #
    # Every method is called under the pool's lock.
    class Waiter < Fairlead::Pool::Waiter
      # @return [Float] seconds for which the queue may stand still.
      attr_reader :timeout
      # @return [Float] when its request came, or else when it began to wait; 0 puts it at the head of the queue.
      attr_reader :rank
      # @return [Symbol, nil] :take a connection, or :open one.
      attr_accessor :assignment
      # @return [Boolean] whether it has tried to open a connection when its time was over.
      attr_accessor :tried
      # @return [#block, nil] the scheduler in which it sleeps.
      attr_reader :scheduler

      def initialize(timeout, preferred: false)
        super(Clock.now, nil)
        @timeout = timeout
        @scheduler = ::Fiber.current_scheduler || scheduler_of_request
        @rank = preferred ? 0.0 : rank_of_request || since
        @sleeping = false
        @assignment = @tried = nil
      end

      # Sleeps without the lock until {#wake}, or for so long. Monitor#wait_for_cond calls it, as a condition variable.
      #
      # @param mutex [Thread::Mutex] the lock's own.
      # @param seconds [Float, nil]
      def wait(mutex, seconds)
        return (@condition ||= ::Thread::ConditionVariable.new).wait(mutex, seconds) unless @scheduler

        @sleeping = true
        mutex.unlock
        begin
          RequestTimes.during(RequestTimes::CONNECTION) { @scheduler.block(self, seconds) }
        ensure
          @sleeping = false
          # The monitor counts this fiber as its owner again, whatever is raised here.
          mutex.try_lock || Uninterruptible.run { mutex.lock }
        end
      end

      def wake
        return @condition&.signal unless @scheduler
        return unless @sleeping

        @sleeping = false
        direct? ? @scheduler.hand_on(@fiber) : @scheduler.unblock(self, @fiber)
      end

      # ActiveRecord's queue leases what it returns. A waiter that is to open a connection is returned, too.
      def lease = nil

      private

      # A blocking fiber that a request has made waits in the request's scheduler: fibers of its thread may hold the connections.
      def scheduler_of_request
        scheduler = ::Fiber.scheduler
        scheduler if scheduler.respond_to?(:hand_on) && FiberOwner.current.async_task
      end

      def rank_of_request = (@scheduler.rank if @scheduler.respond_to?(:rank))

      # Whether the caller is a fiber of the same thread, under Fairlead's scheduler.
      def direct? = @scheduler.equal?(::Fiber.scheduler) && @scheduler.respond_to?(:hand_on)
    end
  end
end
