# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # The last look at a connection that goes back to its pool: whether it is within a transaction, by ActiveRecord's books or,
    # whatever these say, by what its driver knows. What the next request writes would be lost with that transaction.
    module OpenTransactions
      # @return [void]
      def self.install
        pool = ::ActiveRecord::ConnectionAdapters::ConnectionPool
        pool.prepend(Pool) unless pool.include?(Pool)
      end

      # @param connection [ActiveRecord::ConnectionAdapters::AbstractAdapter]
      # @return [Boolean] the transaction around a test case is not joinable, and does not count.
      def self.in?(connection)
        transaction = connection.current_transaction
        transaction.open? ? transaction.joinable? : in_database?(connection.instance_variable_get(:@raw_connection))
      end

      def self.in_database?(raw)
        if raw.respond_to?(:fairlead_unsettled?) then raw.fairlead_unsettled?
        elsif raw.respond_to?(:transaction_active?) then !raw.closed? && raw.transaction_active? # SQLite's
        else false
        end
      end
      private_class_method :in_database?

      # Closes it, and so has the database roll back what is open.
      #
      # @return [void]
      def self.close(connection)
        warn "fairlead: a request ended within an open database transaction; it is rolled back. " \
          "Use transaction { … } with a block, or commit before the response is returned."
        connection.disconnect!
      end

      # Of ConnectionPool.
      module Pool
        def checkin(connection)
          return super if @pinned_connection.equal?(connection) || !OpenTransactions.in?(connection)

          Uninterruptible.run do
            OpenTransactions.close(connection)
            super
          end
        end
      end
    end
  end
end
