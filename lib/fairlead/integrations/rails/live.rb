# frozen_string_literal: true

module Fairlead
  # ActionController::Live runs the action beside the request that sends its output. In a serving fiber this
  # needs no thread: the action runs in a child task, waits without holding anything, and a thousand event
  # streams are a thousand fibers.
  module RailsLive
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

    # Rails raises in the request what an action raises before its response has begun, if it is a StandardError. Here
    # that holds for any exception. Whoever leaves before the body is closed leaves nobody who reads what the action writes.
    def process(...)
      @fairlead_request = true
      (request.env["rack.response_finished"] ||= []) << ->(*) { abandon_stream }
      super.tap { ::Kernel.raise @fairlead_error if @fairlead_error }
    ensure
      @fairlead_request = false
    end

    private

    def new_controller_thread(&action)
      task = ::Async::Task.current? or return super

      request_fiber = FiberOwner.current
      task.async do
        ::Thread.current[REQUEST_FIBER] = request_fiber
        RequestDeadlines.current&.share do |error|
          abandon_stream # first: closing a stream that nobody reads would wait for room
          error.is_a?(ClientGone) ? disconnected(error) : error
        end
        failure = ::ThreadError.new("the action has been ended")
        failure.set_backtrace(caller(0, 1)) # Rails logs it
        action.call
        failure = nil
      rescue ::Async::Cancel
        raise
      rescue ::Exception => failure
        nil
      ensure
        fail_action(failure) if failure
        ActiveRecord::LeaseCleanup.release
      end
    end

    # The action has raised what Rails does not rescue.
    def fail_action(error)
      return @fairlead_error = error if @fairlead_request

      log_error(error)
      stream = @_response.stream
      stream.call_on_error
      stream.close
    end

    def abandon_stream
      stream = @_response.stream
      stream.abort if stream.respond_to?(:abort) && !stream.closed?
    end

    # What apps know it by.
    def disconnected(error) = ::ActionController::Live::ClientDisconnected.new(error.message)
  end
end
