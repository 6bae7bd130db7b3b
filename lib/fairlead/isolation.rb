# frozen_string_literal: true

module Fairlead
  # Makes ActiveSupport and ActiveRecord go by fiber instead of by thread. With many requests in the fibers of one
  # thread, `:thread` would have them share one database connection, one CurrentAttributes, one Time.zone.
  module Isolation
    # To be called by whoever serves, once the app is loaded. May be called again.
    #
    # @return [void]
    def self.establish
      # ActiveRecord may still be loaded by a request: it must not find :thread then.
      require "active_support" if !defined?(::ActiveSupport) && Gem.loaded_specs.key?("activerecord")
      # A constant that is still to be autoloaded counts as defined, and is loaded here.
      return unless defined?(::ActiveSupport::IsolatedExecutionState)

      state = ::ActiveSupport::IsolatedExecutionState
      state.isolation_level = :fiber unless state.isolation_level == :fiber
      return if @established

      @established = true
      require "fairlead/share_lock"
      require "active_support/lazy_load_hooks"
      ::ActiveSupport.on_load(:action_controller_live) { Live.install }
    end
  end
end
