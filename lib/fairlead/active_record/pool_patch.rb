# frozen_string_literal: true

require "active_record"
require "active_record/connection_adapters/abstract/connection_pool"

module Fairlead
  module ActiveRecord
    # Changes ActiveRecord's connection pool, together with {QueuePatch}, {AdapterPatch} and {Reaping}. The pool stays
    # ActiveRecord's. It gains a fair wait queue ({WaitQueue}), a delay before another connection is opened ({PoolSizing}), a
    # budget ({WorkerBudget}), and figures ({PoolStats}).
    #
    # The row `pool` of {Compatibility::TABLE} lists each method and variable of ActiveRecord on which these files rely.
    module PoolPatch
      # Seconds for which a connection that was checked out, but is not open, counts as being opened.
      CONNECTING = 0.1
      private_constant :CONNECTING

      # @return [void]
      def self.install
        return if @installed

        @installed = true
        # Loaded now: later, it would be loaded in the middle of a request, under a lock, where that may be interrupted.
        [ConnectGate, CpuIdle, LeaseCleanup, PoolSizing, PoolStats, Waiter, WaitQueue, WorkerBudget]
        Leases.install
        pool = ::ActiveRecord::ConnectionAdapters::ConnectionPool
        pool.prepend(Reaping, self)
        pool::ConnectionLeasingQueue.prepend(QueuePatch)
        ActiveRecord.pools.flat_map(&:connections).each { |connection| AdapterPatch.apply(connection.class) }
        SqliteTurns.install
      end

      def self.installed? = @installed ? true : false

      def initialize(...)
        super
        fairlead_gate # from here on it takes no lock, which who connects could not wait for
        fairlead_raise_limit(WorkerBudget.limit) if WorkerBudget.limit
      end

      # @return [Monitor] its lock.
      def fairlead_monitor = @mon_data

      # Like the line of waiters, these two are made once, whichever threads ask first.
      def fairlead_stats = @fairlead_stats || synchronize { @fairlead_stats ||= PoolStats.new(self) }

      def fairlead_gate = @fairlead_gate || synchronize { @fairlead_gate ||= ConnectGate.new(self) }

      # @return [WorkerBudget, nil] what bounds this pool, beside its own size.
      def fairlead_budget
        return @fairlead_budget if @fairlead_budget&.own?

        @fairlead_budget = WorkerBudget.of(db_config)
      end

      # A budget for all workers replaces the size of one pool: one pool may use all of it.
      def fairlead_raise_limit(limit)
        @max_connections = limit if @max_connections && @max_connections < limit && WorkerBudget.counts?(db_config)
      end

      # @return [WaitQueue, nil] nil once the pool is discarded.
      def fairlead_waiters = @available&.fairlead_waiters

      # Under the lock: reports to the budget how many wait.
      def fairlead_report_waiters
        budget = fairlead_budget or return
        waiters = fairlead_waiters
        count = waiters && fairlead_room? ? waiters.size : 0
        return if count.zero? && !@fairlead_waiters_reported

        @fairlead_waiters_reported = count.positive?
        budget.report_waiters(self, count, (waiters.since if count.positive?))
      end

      # Called by the poller, under the lock: has waiters open the connections that they need.
      #
      # @return [Boolean] whether there may soon be more to open.
      def fairlead_grow
        fairlead_report_waiters
        return false if discarded?

        now = Clock.now
        fairlead_reap_if_due(now)
        # Connections in maintenance will come back to waiters.
        wanted = fairlead_waiters.size - @maintaining
        return false unless wanted.positive? && fairlead_room?
        # A connection may come back before long.
        return true if now - fairlead_waiters.since < WaitQueue::OPEN_AFTER

        fairlead_connections_to_open(wanted, now).times { fairlead_waiters.assign_next(:open) }
        true
      end

      def fairlead_room?
        !discarded? && @threads_blocking_new_connections.zero? && (fairlead_room.nil? || fairlead_room.positive?)
      end

      private

      # Under the lock. No more than there is room for: the other waiters would wake only to return to the queue.
      def fairlead_connections_to_open(wanted, now)
        # A holder need not use its connection at once, nor ever.
        connecting = @connections.count do |connection|
          !connection.connected? && now - (connection.fairlead_checked_out_at || now) < CONNECTING
        end
        opening = fairlead_waiters.opening
        @fairlead_sizing ||= PoolSizing.new
        count = @fairlead_sizing.step(fairlead_size + opening, connecting + opening, wanted, now)
        room = [fairlead_room, fairlead_budget&.room].compact.min
        room ? [count, room - opening].min : count
      end

      # Under the lock: connections, open or not yet.
      def fairlead_size = @connections.size + @now_connecting

      # @return [Integer, nil] how many more the pool may have; nil: any number.
      def fairlead_room = (@max_connections - fairlead_size if @max_connections)

      def fairlead_record_hold(connection)
        since = connection.fairlead_checked_out_at
        fairlead_stats.holds.add(held = Clock.now - since) if since
        scheduler = ::Fiber.scheduler
        scheduler.note_hold(held) if held && scheduler.respond_to?(:note_hold)
        connection.fairlead_checked_out_at = connection.fairlead_waiting_since = nil
      end

      # A waiter that is told to open a connection leaves the queue, since connecting is done without the lock, and gets its
      # place back if there is no room after all.
      #
      # Unlike ActiveRecord's own, it does not look through all connections before each wait, nor reap in the request's fiber:
      # the poller sees to that.
      def acquire_connection(checkout_timeout)
        found = @available.poll || try_to_queue_for_background_connection(checkout_timeout) ||
                try_to_checkout_new_connection || @available.poll(checkout_timeout)
        found = try_to_checkout_new_connection(assigned: true) || @available.poll(found) while found.is_a?(Waiter)
        found
      rescue ::ActiveRecord::ConnectionTimeoutError => error
        raise error.set_pool(self)
      end

      # Opens the first connection at once, others only when the poller says so: first, a connection in use may come back,
      # and waiting for it costs nothing in a fiber. What an interrupted caller has opened goes to others.
      def fairlead_open(needed, &)
        return unless needed || discarded? || fairlead_opens_first? || ::ActiveSupport::IsolatedExecutionState.isolation_level != :fiber

        fairlead_within_budget(&)
      end

      # A newcomer must not take the room that the budget has granted to requests that wait already.
      def fairlead_opens_first?
        fairlead_size.zero? && (fairlead_waiters.nil? || (fairlead_waiters.empty? && fairlead_waiters.opening.zero?))
      end

      def fairlead_within_budget
        budget = fairlead_budget
        return if budget && !(fairlead_room? && (id = budget.take))

        connection = yield or return
        fairlead_waiters&.record_progress(Clock.now)
        AdapterPatch.apply(connection.class)
        connection.fairlead_budget_id = id
        connection
      ensure
        budget.free(id) if id && !connection
      end

      # In place of those that were removed.
      def bulk_make_new_connections(count)
        count.times do
          connection = try_to_checkout_new_connection(assigned: true)
          checkin(connection) if connection
        end
      end

      def fairlead_return(connection)
        fairlead_record_hold(connection)
        fairlead_unwanted?(connection) ? fairlead_retire(connection) : yield
      end

      # Whether it goes to somebody who waits for the server to accept one more connection.
      def fairlead_wanted_at_gate?(connection)
        fairlead_gate.wanted? && connection.connected? && connection.respond_to?(:fairlead_detach)
      end

      # Whether it leaves the pool instead of being checked in.
      def fairlead_unwanted?(connection)
        fairlead_wanted_at_gate?(connection) || (connection.fairlead_budget_id && fairlead_budget&.recalled?)
      end

      # Unlike {#remove}, opens no other connection for the waiters.
      def fairlead_retire(connection)
        synchronize do
          remove_connection_from_thread_cache(connection)
          @connections.delete(connection)
        end
        fairlead_wanted_at_gate?(connection) ? fairlead_gate.give(connection) : connection.disconnect!
      end
    end
  end
end
