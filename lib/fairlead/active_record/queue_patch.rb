# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # Of ConnectionPool::ConnectionLeasingQueue, whose lock is the pool: the free connections, and a {WaitQueue} in place of
    # ActiveRecord's condition variable.
    module QueuePatch
      def add(element)
        @lock.synchronize do
          @queue.push(element)
          fairlead_waiters.assign_next
        end
      end

      def add_back(element)
        @lock.synchronize do
          @queue.unshift(element)
          fairlead_waiters.assign_next
        end
      end

      # ActiveRecord's own compares a thread with what is a fiber here.
      def with_a_bias_for(context)
        before = nil
        @lock.synchronize do
          before = fairlead_waiters.preferred
          fairlead_waiters.preferred = context
        end
        yield
      ensure
        @lock.synchronize { fairlead_waiters.preferred = before }
      end

      # The first ones to ask may be several threads, without the lock: whoever joined a line that another one replaces would
      # wait for ever.
      def fairlead_waiters
        @fairlead_waiters || @lock.synchronize { @fairlead_waiters ||= WaitQueue.new(@lock.fairlead_monitor) }
      end

      private

      # An interruption arrives in {WaitQueue#wait}; from there on nothing in here waits, so what is taken is not lost.
      #
      # @param timeout [Float, Waiter] seconds, or a waiter that could not open the connection it was told to open.
      # @return [ConnectionAdapters::AbstractAdapter, Waiter] the latter if it is to open a connection.
      def wait_poll(timeout)
        connection = nil
        waiter = timeout.is_a?(Waiter) ? fairlead_waiters.restore(timeout) : fairlead_join(timeout)
        @num_waiting += 1
        until (connection = fairlead_take(waiter))
          return waiter if waiter.assignment == :open
          next fairlead_waiters.wait(waiter) { @lock.fairlead_grow } if Clock.now < fairlead_waiters.deadline(waiter)
          return waiter if fairlead_opens_one?(waiter)

          fairlead_time_out(waiter)
        end
        connection
      ensure
        @num_waiting -= 1
        fairlead_remove(waiter, connection)
      end

      def fairlead_join(seconds) = fairlead_waiters.join(::ActiveSupport::IsolatedExecutionState.context, seconds)

      def fairlead_take(waiter)
        return unless waiter.assignment == :take
        return remove if any?

        # Somebody has taken it for maintenance, or removed it.
        fairlead_waiters.restore(waiter)
        nil
      end

      # What an interrupted waiter was to take goes to the next one.
      def fairlead_remove(waiter, connection)
        fairlead_waiters.remove(waiter)
        fairlead_waiters.assign_next if waiter.assignment == :take && !connection && any?
        fairlead_record_wait(waiter, Clock.now) if connection
        @lock.fairlead_report_waiters if @num_waiting.zero?
      end

      def fairlead_record_wait(waiter, now)
        fairlead_waiters.record_progress(now)
        @lock.fairlead_stats.waits.add(now - waiter.since)
      end

      # Before a waiter times out, it opens a connection if there may be one more, whatever speaks against that.
      def fairlead_opens_one?(waiter) = @lock.fairlead_room? && !waiter.tried && (waiter.tried = true)

      def fairlead_time_out(waiter)
        raise ::ActiveRecord::ConnectionTimeoutError, "the pool was discarded meanwhile" if @lock.discarded?

        stats = @lock.fairlead_stats
        stats.timeouts += 1
        message = format("could not obtain a connection from the pool within %.3f seconds (waited %.3f seconds); " \
          "all pooled connections were in use", waiter.timeout, Clock.now - waiter.since)
        raise ::ActiveRecord::ConnectionTimeoutError, "#{message}. #{stats.complaint(waiter.timeout)}"
      end
    end
  end
end
