# frozen_string_literal: true

require "active_record"
require "active_record/connection_adapters/abstract/connection_pool"

module Fairlead
  module ActiveRecord
    # The one place where Fairlead changes ActiveRecord's connection pool: everything here is called by ActiveRecord,
    # and everything that is ActiveRecord's own, and not public, is called from here.
    #
    # The pool stays ActiveRecord's. What it gets is: a line in which an interrupted waiter loses nothing for the others
    # ({WaitQueue}), patience before another connection is opened, a budget ({Budget}), and figures ({PoolStats}). The row `pool` of
    # {Compatibility::TABLE} lists each method and variable of ActiveRecord on which that relies.
    module Seam
      # @return [void]
      def self.install
        return if @installed

        @installed = true
        # What is loaded later is loaded in the middle of a request, under a lock, where it may be interrupted.
        [Budget, CpuIdle, Door, Leases, PoolSizing, PoolStats, WaitQueue, Waiter]
        pool = ::ActiveRecord::ConnectionAdapters::ConnectionPool
        pool.prepend(Pool)
        pool::ConnectionLeasingQueue.prepend(Queue)
        pool::ExecutorHooks.singleton_class.prepend(ExecutorHooks)
        ::ActiveRecord::ConnectionAdapters::AbstractAdapter.include(Adapter)
        SqliteTurns.install
      end

      def self.installed? = @installed ? true : false

      # Has the adapters of a class tell the budget what they open and close.
      def self.watch(adapter_class)
        adapter_class.prepend(Connection) unless adapter_class.include?(Connection)
      end

      # Of ConnectionAdapters::AbstractAdapter.
      module Adapter
        # @return [Float, nil] when it was checked out.
        attr_accessor :fairlead_since
        # @return [Float, nil] since when whoever has checked it out has waited at the {Door} in vain.
        attr_accessor :fairlead_vain_since
        # @return [Integer, nil] what the budget knows it by.
        attr_accessor :fairlead_id
      end

      # Of an adapter whose connections count: PostgreSQLAdapter, for example.
      module Connection
        def disconnect!
          super
        ensure
          fairlead_closed if fairlead_id
        end

        # Room for it is free again once it is closed and has left its pool.
        def fairlead_closed
          return if connected?

          Uninterruptible.run do
            next fairlead_budget&.shut(fairlead_id) if pool.fairlead_has?(self)

            fairlead_budget&.free(fairlead_id)
            self.fairlead_id = nil
          end
        end

        private

        def reconnect
          # What is connected to the database no more is replaced without being disconnected.
          fairlead_budget&.shut(fairlead_id) if @raw_connection
          super
          fairlead_budget&.opened(fairlead_id, fairlead_socket) unless @fairlead_taken_over
        end

        def fairlead_budget = (pool.fairlead_budget if fairlead_id)

        def fairlead_socket
          if @raw_connection.respond_to?(:fairlead_socket) then @raw_connection.fairlead_socket
          elsif @raw_connection.respond_to?(:socket_io) then @raw_connection.socket_io
          elsif @raw_connection.respond_to?(:socket) then ::IO.for_fd(@raw_connection.socket, autoclose: false)
          end
        rescue ::StandardError
          nil
        end
      end

      # Of ConnectionPool::ExecutorHooks.
      module ExecutorHooks
        # What arrives while the first of several pools gets its connection back must not keep the others from theirs.
        def complete(state) = Uninterruptible.run { super }
      end

      # Of ConnectionPool::ConnectionLeasingQueue, whose lock is the pool. Nothing waits for ActiveRecord's own condition.
      module Queue
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

        # Under the lock.
        def fairlead_waiters = @fairlead_waiters ||= WaitQueue.new(@lock.fairlead_monitor)

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
            next fairlead_waiters.wait(waiter) { @lock.fairlead_grow } if Fairlead::Pool.clock < fairlead_waiters.deadline(waiter)
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
          fairlead_record_wait(waiter, Fairlead::Pool.clock) if connection
          @lock.fairlead_wish if @num_waiting.zero?
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
            "all pooled connections were in use", waiter.timeout, Fairlead::Pool.clock - waiter.since)
          raise ::ActiveRecord::ConnectionTimeoutError, "#{message}. #{stats.complaint(waiter.timeout)}"
        end
      end

      # Of ConnectionPool.
      module Pool
        # For how many seconds one that was taken and is not open counts as being opened.
        CONNECTING = 0.1
        # Seconds between two searches for connections whose owners have died.
        REAPING = 0.01
        private_constant :CONNECTING, :REAPING

        def initialize(...)
          super
          fairlead_lift(Budget.limit) if Budget.limit
        end

        # @return [Monitor] its lock.
        def fairlead_monitor = @mon_data

        def fairlead_stats = @fairlead_stats ||= PoolStats.new(self)

        # @return [Door] where connections are opened.
        def fairlead_door = @fairlead_door ||= Door.new(self)

        # @return [Budget, nil] what bounds this pool, beside its own size.
        def fairlead_budget
          return @fairlead_budget if @fairlead_budget&.own?

          @fairlead_budget = Budget.of(db_config)
        end

        # With a budget for all pools of all workers, the size of one says little: it may have all.
        def fairlead_lift(limit)
          @max_connections = limit if @max_connections && @max_connections < limit && Budget.counts?(db_config)
        end

        def fairlead_has?(connection) = synchronize { @connections&.include?(connection) }

        # @return [WaitQueue, nil] nil once the pool is discarded.
        def fairlead_waiters = @available&.fairlead_waiters

        # What is raised in a fiber that waits for the lock is raised once the fiber has it, and has given it back: a mutex
        # wakes one of those who wait, and would wake no other one in its place.
        def synchronize(&)
          return @mon_data.synchronize(&) unless ::Fiber.current_scheduler

          fairlead_enter unless @mon_data.try_enter
          begin
            yield
          ensure
            @mon_data.exit
          end
        end
        alias mon_synchronize synchronize

        def checkout(checkout_timeout = @checkout_timeout)
          connection = super
          connection.fairlead_since ||= Fairlead::Pool.clock
          connection
        end

        def checkin(connection)
          return super if @pinned_connection.equal?(connection) || !fairlead_mine?(connection)

          Uninterruptible.run do
            fairlead_note_hold(connection)
            fairlead_unwanted?(connection) ? fairlead_give_up(connection) : super
          rescue ::Exception # of a callback: nobody else would ever give it back
            fairlead_discard(connection) if fairlead_mine?(connection)
            raise
          end
        end

        # Who waited while all connections were disconnected has a lease that the pool has forgotten: ActiveRecord, which
        # looks for it, would not give back what it got.
        def release_connection(lease = nil)
          return super if lease.nil? || discarded?

          connection = lease.release
          checkin(connection) if connection
          connection ? true : false
        end

        def remove(connection)
          Uninterruptible.run do
            connection.fairlead_since = nil
            super
            connection.fairlead_closed if connection.fairlead_id
            synchronize { fairlead_waiters&.poll_soon }
          end
        end

        # What a dead owner held, and has lost, ActiveRecord removes without closing it.
        def reap
          fairlead_whole do
            orphans = synchronize { discarded? ? [] : fairlead_orphans }
            super
            orphans.each { |connection| connection.disconnect! unless fairlead_has?(connection) }
          end
        end

        def disconnect(...) = fairlead_free_those_that_leave { super }
        def clear_reloadable_connections(...) = fairlead_free_those_that_leave { super }

        # What these take out of the pool, or keep from others, they would not give back if they were interrupted.
        %i[discard! flush prepopulate retire_old_connections preconnect keep_alive].each do |name|
          define_method(name) { |*arguments| fairlead_whole { super(*arguments) } }
        end

        # Others wait: closes what is idle, unless somebody waits for it here.
        #
        # @return [Integer] how many.
        def fairlead_spare(most)
          Uninterruptible.run { fairlead_take_idle(most).each(&:disconnect!).size }
        end

        # Under the lock: tells the budget who waits.
        def fairlead_wish
          budget = fairlead_budget or return
          oldest = fairlead_waiters&.oldest
          count = oldest && fairlead_room? ? fairlead_waiters.size : 0
          return if count.zero? && !@fairlead_wished

          @fairlead_wished = count.positive?
          budget.waiting(self, count, oldest&.since)
        end

        # Called by the lookout, under the lock: opens what those who wait need.
        #
        # @return [Boolean] whether there may soon be more to open.
        def fairlead_grow
          fairlead_wish
          return false if discarded?

          now = Fairlead::Pool.clock
          fairlead_reap_later(now)
          # Those who wait for one in maintenance will get it.
          wanted = fairlead_waiters.size - @maintaining
          return false unless wanted.positive? && fairlead_room?
          # Those who came just now may be served before long.
          return true if now - fairlead_waiters.oldest.since < WaitQueue::OPEN_AFTER

          # Who takes a connection need not use it at once, nor ever.
          connecting = @connections.count do |connection|
            !connection.connected? && now - (connection.fairlead_since || now) < CONNECTING
          end
          opening = fairlead_waiters.opening
          count = fairlead_sizing.step(fairlead_size + opening, connecting + opening, wanted, now)
          # Whoever is called while there is no room would wake only to stand in line again.
          room = [fairlead_room, fairlead_budget&.room].compact.min
          count = [count, room - opening].min if room
          count.times { fairlead_waiters.assign_next(:open) }
          true
        end

        def fairlead_room?
          !discarded? && @threads_blocking_new_connections.zero? && (fairlead_room.nil? || fairlead_room.positive?)
        end

        private

        # Under the lock: connections, open or not yet.
        def fairlead_size = @connections.size + @now_connecting

        # @return [Integer, nil] how many more the pool may have; nil: any number.
        def fairlead_room = (@max_connections - fairlead_size if @max_connections)

        def fairlead_enter
          entered = false
          Uninterruptible.run do
            @mon_data.enter
            entered = true
          end
        rescue ::Exception
          @mon_data.exit if entered
          raise
        end

        # An own thread of the pool's is ActiveRecord's; its process must be able to end while a database does not answer.
        def fairlead_whole(&) = ::Fiber.current_scheduler ? Uninterruptible.run(&) : yield

        def fairlead_mine?(connection) = connection.owner == ::ActiveSupport::IsolatedExecutionState.context

        def fairlead_note_hold(connection)
          since = connection.fairlead_since
          fairlead_stats.holds.add(Fairlead::Pool.clock - since) if since
          connection.fairlead_since = connection.fairlead_vain_since = nil
        end

        def fairlead_take_idle(most)
          synchronize do
            next [] if discarded? || @available.num_waiting.positive?

            @connections.reject(&:in_use?).first(most).each do |connection|
              connection.lease
              @available.delete(connection)
              @connections.delete(connection)
            end
          end
        end

        # Who is called to open a connection leaves the line for it, since that is done without the lock, and gets its
        # place back if there is no room after all.
        #
        # ActiveRecord looks through all connections before each wait, which takes longer than a query where there are
        # many and requests wait for each; and asks, in the fiber of the request, what dead owners have left: here the
        # lookout sees to that.
        def acquire_connection(checkout_timeout)
          found = @available.poll || try_to_queue_for_background_connection(checkout_timeout) ||
                  try_to_checkout_new_connection || @available.poll(checkout_timeout)
          found = try_to_checkout_new_connection(called: true) || @available.poll(found) while found.is_a?(Waiter)
          found
        rescue ::ActiveRecord::ConnectionTimeoutError => error
          raise error.set_pool(self)
        end

        # ActiveRecord's own clean-up may be interrupted.
        def checkout_and_verify(connection)
          super
        rescue ::Exception
          fairlead_discard(connection)
          raise
        end

        def fairlead_discard(connection)
          Uninterruptible.run do
            remove(connection) if fairlead_has?(connection)
            connection.disconnect!
          end
        end

        # Under the lock: an owner may die while others wait already. What it held is asked whether it still works, which
        # takes time, and must not be done under the lock.
        def fairlead_reap_later(now)
          return if !fairlead_reaping_due?(now) || @fairlead_reaper&.alive?

          @fairlead_reaped_at = now
          return if fairlead_orphans.empty?

          # Threads inherit the storage of the fiber that makes them: this one is of no request.
          @fairlead_reaper = ::Fiber.new(blocking: true, storage: {}) { ::Thread.new { reap } }.resume
          @fairlead_reaper.name = "fairlead reaper"
        rescue ::ThreadError # the system allows no more: next time
          nil
        end

        # Under the lock: those whose owners have died.
        def fairlead_orphans = @connections.select { |connection| connection.in_use? && !connection.owner.alive? }

        def fairlead_reaping_due?(now) = now - (@fairlead_reaped_at || 0.0) >= REAPING

        # The first connection is opened at once, others once it has been waited for one in use to come back: in a fiber
        # that costs nothing. An interrupted one leaves what it has opened to others.
        def try_to_checkout_new_connection(called: false, &)
          return unless called || block_given? || discarded? || fairlead_size.zero? ||
                        ::ActiveSupport::IsolatedExecutionState.isolation_level != :fiber

          connection = nil
          begin
            Uninterruptible.run { connection = fairlead_within_budget { super(&) } }
          rescue ::Exception
            checkin(connection) if connection
            raise
          end
        end

        def fairlead_within_budget
          budget = fairlead_budget or return yield
          return unless fairlead_room? && (id = budget.take)

          connection = yield
          return unless connection

          Seam.watch(connection.class)
          connection.fairlead_id = id
          connection
        ensure
          budget.free(id) if id && !connection
        end

        def fairlead_sizing = @fairlead_sizing ||= PoolSizing.new

        # Whether somebody waits for a connection who has been waiting for the server to take one more.
        def fairlead_surrendered?(connection)
          fairlead_door.wanted? && connection.connected? && connection.respond_to?(:fairlead_surrender)
        end

        # Whether it is to be closed instead of being checked in.
        def fairlead_unwanted?(connection)
          fairlead_surrendered?(connection) || (connection.fairlead_id && fairlead_budget&.recalled?) ? true : false
        end

        # Not {#remove}, which would open another one for those who wait.
        def fairlead_give_up(connection)
          synchronize do
            remove_connection_from_thread_cache(connection)
            @connections.delete(connection)
          end
          fairlead_surrendered?(connection) ? fairlead_door.give(connection) : connection.disconnect!
        end

        def fairlead_free_those_that_leave
          fairlead_whole do
            before = discarded? ? [] : connections
            yield
          ensure
            after = discarded? ? [] : connections
            (before - after).each { |connection| connection.fairlead_closed if connection.fairlead_id }
          end
        end

        # In place of those that were removed.
        def bulk_make_new_connections(count)
          count.times do
            connection = try_to_checkout_new_connection(called: true)
            checkin(connection) if connection
          end
        end
      end
    end
  end
end
