# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # Keeps open transactions from the next request, which would lose what it writes with them. A connection that goes back to
    # its pool within a transaction is closed; both ActiveRecord and the driver are asked.
    #
    # ActiveRecord throws away a connection on which it could not end a transaction. That connection is not opened again before
    # the outermost transaction has ended: what is written until then would be committed without the rest.
    module OpenTransactions
      # The first version that looks at a connection itself once more after such an interruption.
      VERIFIES = ::Gem::Version.new("8.1.4")
      private_constant :VERIFIES

      # @return [void]
      def self.install
        adapter = ::ActiveRecord::ConnectionAdapters::AbstractAdapter
        adapter.prepend(Adapter)
        adapter.prepend(Interrupted) if ::ActiveRecord.gem_version < VERIFIES
      end

      # @param connection [ActiveRecord::ConnectionAdapters::AbstractAdapter]
      # @return [Boolean] without the transaction around a test case, which is not joinable, and those on a connection that a
      #   test shares with all requests.
      def self.in?(connection)
        return false if shared_by_test?(connection)

        transaction = connection.current_transaction
        transaction.open? ? transaction.joinable? : in_database?(connection.instance_variable_get(:@raw_connection))
      end

      def self.shared_by_test?(connection)
        pool = connection.pool
        connection.equal?(pool.instance_variable_get(:@pinned_connection)) ||
          (pool.instance_variable_get(:@lock_thread) ? true : false) # before 7.2
      end
      private_class_method :shared_by_test?

      def self.in_database?(raw)
        if raw.respond_to?(:fairlead_unsettled?) then raw.fairlead_unsettled?
        elsif raw.respond_to?(:transaction_active?) then !raw.closed? && raw.transaction_active? # SQLite's
        else false
        end
      end
      private_class_method :in_database?

      # Closes it, so the database rolls back what is open.
      #
      # @return [void]
      def self.close(connection)
        warn "fairlead: a request ended within an open database transaction; it is rolled back. " \
          "Use transaction { … } with a block, or commit before the response is returned."
        connection.disconnect!
      end

      # @api private
      # A savepoint depends on the transaction around it: all begin anew, from the outermost on.
      #
      # @param manager [ActiveRecord::ConnectionAdapters::TransactionManager]
      # @return [ActiveRecord::ConnectionAdapters::TransactionManager] the same.
      def self.not_begun(manager)
        manager.instance_variable_get(:@stack).each do |transaction|
          next unless transaction.materialized?

          transaction.incomplete!
          transaction.instance_variable_set(:@materialized, false)
        end
        manager.instance_variable_set(:@has_unmaterialized_transactions, true)
        manager
      end

      # Of AbstractAdapter. What is no StandardError (Timeout, for one) has interrupted a statement, and the driver has closed the
      # connection: outside of a transaction, ActiveRecord opens it again before the next statement of the request.
      module Interrupted
        private

        def with_raw_connection(...)
          super
        rescue ::Exception => error
          @last_activity = @verified = nil unless error.is_a?(::StandardError)
          raise
        end
      end
      private_constant :Interrupted

      # Of AbstractAdapter.
      module Adapter
        def transaction(...)
          @fairlead_depth = (@fairlead_depth || 0) + 1
          super
        ensure
          @fairlead_depth -= 1
          @fairlead_thrown_away = false if @fairlead_depth.zero?
        end

        # It stays in the pool, and may be opened again later.
        def throw_away!
          @fairlead_thrown_away = @fairlead_depth&.positive?
          Uninterruptible.run { disconnect! }
        end

        # ActiveRecord begins its open transactions anew on the new connection. If this fails halfway, it takes them for begun,
        # and would write without a transaction.
        def reconnect!(...)
          if @fairlead_thrown_away
            raise ::ActiveRecord::ConnectionNotEstablished, "the connection was closed within a transaction that could not be ended"
          end

          super.tap { materialize_transactions } # those that were put back
        rescue Exception
          throw_away! if @fairlead_depth&.positive? && !@fairlead_thrown_away
          raise
        end

        # ActiveRecord lays its open transactions aside while it configures the new connection, and tries once more if that fails:
        # by then it has forgotten them. They are put back as not begun yet, and begun once an attempt has succeeded.
        def reset_transaction(**options)
          open = @transaction_manager if options[:restore] && @transaction_manager&.restorable?
          super
        rescue Exception
          @transaction_manager = OpenTransactions.not_begun(open) if open
          raise
        end
      end
    end
  end
end
