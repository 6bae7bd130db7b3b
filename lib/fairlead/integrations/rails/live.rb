# frozen_string_literal: true

module Fairlead
  # Has ActionController::Live run the action in a child task of the request, which sends its output, instead of a thread: a thousand event
  # streams are a thousand fibers.
  module RailsLive
    # The fiber-local in which the child has the fiber of its request.
    REQUEST_FIBER = :fairlead_live_request_fiber
    private_constant :REQUEST_FIBER

    # Rails shares the isolated state of the request's thread. Under `:fiber` its fiber has it.
    module State
      # (see ActiveSupport::IsolatedExecutionState.share_with)
      def share_with(other, **options, &) = super(::Thread.current[REQUEST_FIBER] || other, **options, &)
    end

    def self.install
      return if ::ActionController::Live.include?(self) || !Compatibility.fits?(:live)

      ::ActionController::Live.prepend(self)
      ::ActiveSupport::IsolatedExecutionState.singleton_class.prepend(State)
    end

    # Rails raises in the request any StandardError of the action from before its response began. Here that holds for all exceptions. If the
    # request ends before its body is closed, nothing reads what the action writes, and the stream is aborted.
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
      RequestDeadlines.current!
      task.async do
        ::Thread.current[REQUEST_FIBER] = request_fiber
        RequestDeadlines.current&.share do |error|
          abandon_stream # before the action can close the stream, which would wait for room
          error.is_a?(RequestTimeout) ? error : disconnected(error)
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

    # The action has raised something that Rails does not rescue.
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

    # The error that apps rescue.
    def disconnected(error) = ::ActionController::Live::ClientDisconnected.new(error.message)
  end
end
