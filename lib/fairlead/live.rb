# frozen_string_literal: true

module Fairlead
  # ActionController::Live runs the action beside the request that sends its output. In a serving fiber this
  # needs no thread: the action runs in a child task, waits without holding anything, and a thousand event
  # streams are a thousand fibers.
  module Live
    # Marks the child's fiber with the fiber of its request, as a fiber-local.
    REQUEST_FIBER = :fairlead_live_request_fiber
    private_constant :REQUEST_FIBER

    # Rails hands the request's isolated state over from its thread. Under `:fiber` it is with the request's
    # fiber.
    module State
      # (see ActiveSupport::IsolatedExecutionState.share_with)
      def share_with(other, **options, &) = super(::Thread.current[REQUEST_FIBER] || other, **options, &)
    end

    # @return [void]
    def self.install
      return unless Compatibility.fits?(:live)

      ::ActionController::Live.prepend(self)
      ::ActiveSupport::IsolatedExecutionState.singleton_class.prepend(State)
    end

    private

    def new_controller_thread(&action)
      task = ::Async::Task.current? or return super

      request_fiber = FiberOwner.current
      task.async do
        ::Thread.current[REQUEST_FIBER] = request_fiber
        action.call
      ensure
        ActiveRecord::Leases.release
      end
    end
  end
end
