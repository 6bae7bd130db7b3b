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
        ActiveRecord::PermanentCheckout.said = app.config.respond_to?(:active_record) &&
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

    # What Rails makes of a request that took too long, for its log: its client has been answered so already.
    initializer "fairlead.request_timeout", after: "action_dispatch.configure" do
      if defined?(::ActionDispatch::ExceptionWrapper)
        ::ActionDispatch::ExceptionWrapper.rescue_responses["Fairlead::RequestTimeout"] = :gateway_timeout
      end
    end
  end
end
