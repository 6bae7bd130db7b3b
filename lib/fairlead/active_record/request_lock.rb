# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # The lock around a connection that a test shares with requests. It belongs to a request: its enumerators may enter what the
    # request has locked.
    class RequestLock
      # Of ConnectionAdapters::AbstractAdapter.
      module Adapter
        def lock_thread=(context)
          super
          @lock = RequestLock.of(self.class) if context.is_a?(::Fiber)
        end
      end

      # @return [void]
      def self.install = ::ActiveRecord::ConnectionAdapters::AbstractAdapter.prepend(Adapter)

      # Before 7.2 all connections share one lock.
      def self.of(adapter_class) = adapter_class.const_defined?(:FIBER_LOCK) ? (@common ||= new) : new

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
  end
end
