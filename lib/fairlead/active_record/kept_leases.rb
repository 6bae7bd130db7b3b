# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # Of ConnectionPool. All fibers of a request share its connections, and each may release them
    # (GraphQL::Dataloader#cleanup_fiber, an enumerator that leaves `with_connection`). A connection that another fiber of the
    # request has leased, or that has an open transaction, stays leased until that fiber releases it, or the request ends.
    module KeptLeases
      # Of ConnectionAdapters::AbstractAdapter.
      module Adapter
        # @return [Fiber, nil] which has checked it out.
        attr_accessor :fairlead_lessee

        # Tests put a lock around a connection that they share with requests.
        def lock_thread=(context)
          super
          @lock = KeptLeases.lock(self.class) if context.is_a?(::Fiber)
        end
      end

      # Belongs to a request: its enumerators may enter what the request has locked.
      class RequestLock
        def initialize = @mutex = ::Thread::Mutex.new

        def synchronize(&)
          owner = FiberOwner.current
          return yield if owner.equal?(@owner)

          @mutex.synchronize { owned_by(owner, &) }
        end

        private

        def owned_by(owner)
          @owner = owner
          yield
        ensure
          @owner = nil
        end
      end

      # Before 7.2 all connections share one lock.
      COMMON = RequestLock.new
      private_constant :RequestLock, :COMMON

      # @return [void]
      def self.install
        ::ActiveRecord::ConnectionAdapters::ConnectionPool.prepend(self)
        ::ActiveRecord::ConnectionAdapters::AbstractAdapter.prepend(Adapter)
      end

      def self.lock(adapter_class) = adapter_class.const_defined?(:FIBER_LOCK) ? COMMON : RequestLock.new

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
