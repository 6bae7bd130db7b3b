# frozen_string_literal: true

require "rails/railtie"
require "fairlead/parts"

module Fairlead
  # Prepares a Rails app for fibers. It changes nothing in a console, a task, a test or under another server.
  class Railtie < ::Rails::Railtie
    # After the app's own initializers, and before ActiveSupport reads the setting.
    initializer "fairlead.isolation_level", after: :load_config_initializers do |app|
      if Fairlead.serving?
        ActiveRecord::PermanentCheckoutWarning.set_by_app = app.config.respond_to?(:active_record) &&
          app.config.active_record.key?(:permanent_connection_checkout)
        if app.config.active_support.isolation_level == :thread
          warn "fairlead: config.active_support.isolation_level is :thread, which would mix up requests that " \
            "run in fibers of one thread; :fiber is used. Remove that line from the app's configuration, or " \
            "set it to :fiber."
        end
        app.config.active_support.isolation_level = :fiber
        Isolation.establish
      end
    end

    # Of X-Sendfile (Apache's, Thruster's) the client would get the header and an empty body: the core sends such files itself. The headers
    # of nginx and lighttpd stay, since an app that sets them has that server in front.
    initializer "fairlead.x_sendfile", after: :load_config_initializers do |app|
      if Fairlead.serving? && app.config.respond_to?(:action_dispatch) &&
         app.config.action_dispatch.x_sendfile_header.to_s.casecmp?("X-Sendfile")
        app.config.action_dispatch.x_sendfile_header = nil
      end
    end

    # The status that Rails logs for cancelled requests: 504 past `request_timeout` and 503 when the server stops, as the client was
    # answered, and 499 (nginx' code) when the client has gone. The last two are no errors.
    initializer "fairlead.cancelled_requests", after: "action_dispatch.configure" do
      if defined?(::ActionDispatch::DebugExceptions)
        ::ActionDispatch::ExceptionWrapper.rescue_responses.update("Fairlead::RequestTimeout" => :gateway_timeout,
                                                                   "Fairlead::ClientGone" => 499,
                                                                   "Fairlead::ServerStopping" => :service_unavailable)
        ::ActionDispatch::DebugExceptions.register_interceptor(ClientsThatHaveGone)
      end
    end

    # Logs one line for such a client, and the error with its backtrace at the level debug.
    module ClientsThatHaveGone
      ERRORS = %w[Fairlead::ClientGone Fairlead::ServerStopping].freeze # the classes only exist in a process that serves
      private_constant :ERRORS

      # @param error [Exception] a view's error has the original one as its cause.
      def self.call(request, error)
        error = error.cause if ::ActionDispatch::ExceptionWrapper.wrapper_exceptions.include?(error.class.name)
        return unless ERRORS.include?(error.class.name)

        request.set_header("action_dispatch.debug_exception_log_level", ::Logger::DEBUG)
        request.logger&.info("#{request.request_method} #{request.path}: #{error.message}")
      end
    end
    private_constant :ClientsThatHaveGone
  end
end
