# frozen_string_literal: true

require_relative "boot"

require "rails"
require "active_model/railtie"
require "active_record/railtie"
require "action_controller/railtie"
require "action_view/railtie"

# As `Bundler.require(*Rails.groups)` does, but the drivers of the databases are left to their adapters.
Bundler.require(:default)

$LOAD_PATH.unshift File.expand_path("../../cwork/lib", __dir__)
require "cwork"
require_relative "../lib/remote_server"

module Demo
  class Application < Rails::Application
    config.load_defaults 8.1
    # DATABASE_URL=mysql://… is served by Trilogy.
    ActiveRecord.protocol_adapters.mysql = "trilogy"

    # Errors are shown as public/*.html, logs go to the terminal.
    config.logger = ActiveSupport::TaggedLogging.logger($stdout)
    config.log_level = ENV.fetch("RAILS_LOG_LEVEL", "info")

    # What `remote_io` and `answer` call: a process of its own, which ends with this one.
    server { RemoteServer.start }
  end
end
