# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # Of ConnectionPool. All fibers of a request share its connections, but each may say that it is done with its own
    # (GraphQL::Dataloader#cleanup_fiber, an enumerator that leaves `with_connection`). What another fiber of the request has
    # leased, or has opened a transaction on, stays leased until that fiber gives it back, or the request ends.
    module KeptLeases
      # Of ConnectionAdapters::AbstractAdapter.
      module Adapter
        # @return [Fiber, nil] which has checked it out.
        attr_accessor :fairlead_lessee

        # The lock that tests put around a connection which they share with requests.
        def lock_thread=(context)
          super
          @lock = KeptLeases.lock(self.class) if context.is_a?(::Fiber)
        end
      end

      # Before 7.2 all connections have one lock.
      COMMON = OwnerMonitor.new
      private_constant :COMMON

      # @return [void]
      def self.install
        ::ActiveRecord::ConnectionAdapters::ConnectionPool.prepend(self)
        ::ActiveRecord::ConnectionAdapters::AbstractAdapter.prepend(Adapter)
      end

      def self.lock(adapter_class) = adapter_class.const_defined?(:FIBER_LOCK) ? COMMON : OwnerMonitor.new

      def checkout(...)
        connection = super
        connection.fairlead_lessee = ::Fiber.current
        connection
      end

      # @param arguments [Array] from 7.2 on a lease, or none.
      def release_connection(*arguments)
        return super if discarded?

        lease = arguments.first
        connection = lease.respond_to?(:connection) ? lease.connection : active_connection?
        connection && fairlead_kept?(connection) ? false : super
      end

      private

      def fairlead_kept?(connection)
        return false if @pinned_connection.equal?(connection)

        transaction = connection.current_transaction
        return true if transaction.open? && transaction.joinable?

        fiber = ::Fiber.current
        !fiber.equal?(connection.fairlead_lessee) && !fiber.equal?(FiberOwner.current)
      end
    end
  end
end
