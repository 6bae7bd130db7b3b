# frozen_string_literal: true

require "rails/railtie"
require "fairlead/parts"

module Fairlead
  # Makes a Rails app ready to be served by fibers. Does nothing in a console, a task, a test or under another
  # server: there the app stays as it is.
  class Railtie < ::Rails::Railtie
    # After the app's own initializers have had their say, before ActiveSupport looks at it.
    initializer "fairlead.isolation_level", after: :load_config_initializers do |app|
      if Fairlead.serving?
        ActiveRecord::PermanentCheckoutWarning.set_by_app = app.config.respond_to?(:active_record) &&
          app.config.active_record.key?(:permanent_connection_checkout)
        if app.config.active_support.isolation_level == :thread
          Isolation.overruled!
          warn "fairlead: config.active_support.isolation_level is :thread, which would mix up requests that " \
            "run in fibers of one thread; :fiber is used. Remove that line from the app's configuration, or " \
            "set it to :fiber."
        end
        app.config.active_support.isolation_level = :fiber
        Isolation.establish
      end
    end

    # What Rails makes of requests that were cancelled, for its log: of one that took too long, whose client has been
    # answered so already, and of one whose client has gone (as nginx calls it), which is nobody's mistake.
    initializer "fairlead.cancelled_requests", after: "action_dispatch.configure" do
      if defined?(::ActionDispatch::DebugExceptions)
        ::ActionDispatch::ExceptionWrapper.rescue_responses.update("Fairlead::RequestTimeout" => :gateway_timeout,
                                                                   "Fairlead::ClientGone" => 499)
        ::ActionDispatch::DebugExceptions.register_interceptor(ClientsThatHaveGone)
      end
    end

    # One line in the log. The error itself, with its backtrace, is there at the level debug.
    module ClientsThatHaveGone
      # @param request [ActionDispatch::Request]
      # @param error [Exception] a view's has the one that was raised in it as its cause.
      def self.call(request, error)
        error = error.cause if ::ActionDispatch::ExceptionWrapper.wrapper_exceptions.include?(error.class.name)
        return unless error.class.name == "Fairlead::ClientGone" # only who serves has the class

        request.set_header("action_dispatch.debug_exception_log_level", ::Logger::DEBUG)
        request.logger&.info("#{request.request_method} #{request.path}: #{error.message}")
      end
    end
    private_constant :ClientsThatHaveGone
  end
end
