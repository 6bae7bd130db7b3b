# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # Extends ConnectionPool, in each version of ActiveRecord. Checks connections out and in, and takes them out of the pool. None of it
    # stops halfway, so what a request has leased goes back, whatever interrupts it.
    #
    # All fibers of a request share its connections, and each may release them (GraphQL::Dataloader#cleanup_fiber, an enumerator that
    # leaves `with_connection`). A connection that another fiber of the request has leased, or that has an open transaction, stays
    # leased until that fiber releases it, or the request ends. What goes back within a transaction is closed ({OpenTransactions}).
    #
    # {PoolPatch} and {Reaping} replace the last three methods.
    module Leases
      POOL = ::ActiveRecord::ConnectionAdapters::ConnectionPool
      # Interrupted, these would not give back what they have taken out of the pool, or keep from others. Some came with 8.1.
      WHOLE = %i[
        disconnect clear_reloadable_connections discard! flush prepopulate retire_old_connections preconnect keep_alive
      ].select { |name| POOL.method_defined?(name) }.freeze
      private_constant :POOL, :WHOLE

      # Of ConnectionAdapters::AbstractAdapter.
      module State
        # @return [Fiber, nil] which has checked it out; nil from the beginning of its check-in on.
        attr_accessor :fairlead_lessee
        # @return [Float, nil] when it was checked out.
        attr_accessor :fairlead_checked_out_at
        # @return [Float, nil] since when its holder has waited at the {ConnectGate} in vain.
        attr_accessor :fairlead_waiting_since
        # @return [Integer, nil] the number by which the budget knows it; nil without a budget.
        attr_accessor :fairlead_budget_id
      end

      # Of ConnectionPool::ExecutorHooks.
      module ExecutorHooks
        # An interruption while the first of several pools gets its connection back must not keep the others from theirs.
        def complete(state) = Uninterruptible.run { super }
      end

      # @return [true]
      def self.install
        POOL.prepend(self)
        POOL::ExecutorHooks.singleton_class.prepend(ExecutorHooks) if POOL.const_defined?(:ExecutorHooks) # from 7.2 on
        ::ActiveRecord::ConnectionAdapters::AbstractAdapter.include(State)
        true
      end

      # A fiber that is interrupted while it waits for the lock takes it, gives it back, and then raises: a mutex wakes one
      # waiter, and no other in its place.
      def synchronize(&)
        return @mon_data.synchronize(&) unless ::Fiber.current_scheduler

        fairlead_lock unless @mon_data.try_enter
        begin
          yield
        ensure
          @mon_data.exit
        end
      end
      alias mon_synchronize synchronize

      def checkout(checkout_timeout = @checkout_timeout)
        connection = super
        connection.fairlead_lessee = ::Fiber.current
        connection.fairlead_checked_out_at ||= Clock.now
        connection
      end

      def checkin(connection)
        return super if @pinned_connection.equal?(connection) || !fairlead_owned?(connection)

        Uninterruptible.run do
          connection.fairlead_lessee = nil
          fairlead_forget_closed(connection)
          OpenTransactions.close(connection) if OpenTransactions.in?(connection)
          fairlead_return(connection) { super }
        rescue ::Exception # of a callback: nobody else would ever give it back
          fairlead_discard(connection) if fairlead_owned?(connection)
          raise
        end
      end

      # Whoever waited while all connections were disconnected has a lease that the pool has forgotten: ActiveRecord would look it up.
      #
      # @param arguments [Array] a lease (from 7.2 on), its owner (before), or none.
      def release_connection(*arguments)
        return super if discarded?

        lease = arguments.first if arguments.first.respond_to?(:connection)
        connection = lease ? lease.connection : active_connection?
        return false if connection && fairlead_kept?(connection)
        return super unless lease

        lease.release
        checkin(connection) if connection
        connection ? true : false
      end

      def remove(connection)
        Uninterruptible.run do
          super
          connection.fairlead_lessee = connection.fairlead_checked_out_at = nil
          fairlead_removed(connection)
        end
      end

      # ActiveRecord removes what a dead owner held, and has lost, without closing it.
      def reap
        fairlead_whole do
          orphans = synchronize { discarded? ? [] : fairlead_orphans }
          super
          orphans.each { |connection| connection.disconnect! unless fairlead_has?(connection) }
        end
      end

      WHOLE.each { |name| define_method(name) { |*arguments| fairlead_whole { super(*arguments) } } }

      # @return [Array<ConnectionAdapters::AbstractAdapter>] what the calling request has leased, or was about to give back. Not what
      #   it has taken with #checkout: Rails, too, leaves that to the app, which may use it in a thread of its own.
      def fairlead_leases
        leased = active_connection?
        owned = @connections.dup.select { |one| fairlead_owned?(one) && one.fairlead_lessee.nil? && !one.equal?(leased) }
        leased ? owned.push(leased) : owned
      end

      def fairlead_has?(connection) = synchronize { @connections&.include?(connection) }

      private

      # What an interrupted caller has opened goes to others. Before 7.2, it waits here until the connection is open.
      def try_to_checkout_new_connection(assigned: false, &)
        connection = nil
        Uninterruptible.run { connection = fairlead_open(assigned || block_given?) { super(&) } }
      rescue ::Exception
        checkin(connection) if connection
        raise
      end

      # ActiveRecord's own clean-up can be interrupted.
      def checkout_and_verify(connection)
        super
      rescue ::Exception
        fairlead_discard(connection)
        raise
      end

      def fairlead_lock
        locked = false
        Uninterruptible.run do
          @mon_data.enter
          locked = true
        end
      rescue ::Exception
        @mon_data.exit if locked
        raise
      end

      def fairlead_owned?(connection) = connection.owner.equal?(::ActiveSupport::IsolatedExecutionState.context)

      def fairlead_kept?(connection)
        return false if @pinned_connection.equal?(connection)

        transaction = connection.current_transaction
        return true if transaction.open? && transaction.joinable?

        fiber = ::Fiber.current
        !fiber.equal?(connection.fairlead_lessee) && !fiber.equal?(FiberOwner.current)
      end

      # The driver closes a connection whose statement was interrupted. From 7.2 on, ActiveRecord takes one that was used in the last
      # seconds for a living one.
      def fairlead_forget_closed(connection)
        raw = connection.instance_variable_get(:@raw_connection)
        connection.disconnect! if raw.respond_to?(:finished?) ? raw.finished? : raw.respond_to?(:closed?) && raw.closed?
      end

      def fairlead_discard(connection)
        Uninterruptible.run do
          remove(connection) if fairlead_has?(connection)
          connection.disconnect!
        end
      end

      # Under the lock: connections whose owners have died.
      def fairlead_orphans = @connections.select { |connection| connection.in_use? && !connection.owner.alive? }

      # Without a scheduler, in ActiveRecord's own reaper thread, the process must be able to end while a database does not answer.
      def fairlead_whole(&) = ::Fiber.current_scheduler ? Uninterruptible.run(&) : yield

      # @param _needed [Boolean] whether the caller has to open one now.
      # @yieldreturn [ConnectionAdapters::AbstractAdapter, nil] a new one.
      def fairlead_open(_needed) = yield

      # @yield checks it in.
      def fairlead_return(_connection) = yield

      # It has left the pool.
      def fairlead_removed(_connection); end
    end
  end
end
