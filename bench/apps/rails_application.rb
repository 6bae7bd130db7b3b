# frozen_string_literal: true

require "action_controller/railtie"
# A server's own railtie is loaded by the app's Gemfile in real life. Falcon's sets fibers as the unit of
# isolation.
require "falcon/railtie" if defined?(Falcon)

# A Rails app as it comes, in one file: the stock middleware and the settings of a new app's production.rb, with
# the log at :warn.
class BenchApplication < Rails::Application
  config.load_defaults 8.1
  config.root = __dir__
  config.eager_load = true
  config.enable_reloading = false
  config.consider_all_requests_local = false
  config.secret_key_base = "0123456789abcdef" * 8
  config.log_level = :warn
  config.logger = ActiveSupport::TaggedLogging.logger($stderr)
  config.active_support.report_deprecations = false
  config.action_controller.perform_caching = true
  config.cache_store = :memory_store
end
