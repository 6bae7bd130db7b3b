# frozen_string_literal: true

module Fairlead
  # Makes ActiveSupport, ActiveRecord and Sequel go by fiber instead of by thread. With many requests in the fibers of
  # one thread, `:thread` would have them share one database connection, one CurrentAttributes, one Time.zone.
  module Isolation
    # To be called by whoever serves, once the app is loaded. May be called again.
    #
    # @return [void]
    def self.establish
      SequelPools.isolate
      # ActiveRecord may still be loaded by a request: it must not find :thread then. No more than that is loaded for it:
      # all of ActiveSupport would leave something in the storage that every fiber inherits.
      if !defined?(::ActiveSupport) && Gem.loaded_specs.key?("activerecord")
        require "active_support/isolated_execution_state"
      end
      # A constant that is still to be autoloaded counts as defined, and is loaded here.
      return unless defined?(::ActiveSupport::IsolatedExecutionState)

      isolate(::ActiveSupport::IsolatedExecutionState)
      ActiveRecord.prepare if ActiveRecord.loaded?
      return if @established

      @established = true
      require "fairlead/share_lock"
      require "active_support/lazy_load_hooks"
      # The first one is told of Live itself, but came with Rails 8.1.4.
      %i[action_controller_live action_controller].each { |hook| ::ActiveSupport.on_load(hook) { Live.install } }
      ::ActiveSupport.on_load(:active_record) { ActiveRecord.prepare }
    end

    # The app had asked for :thread.
    #
    # @api private
    def self.overruled! = @overruled = true

    # @return [Boolean] whether the app had asked for :thread.
    def self.overruled? = @overruled ? true : false

    def self.isolate(state)
      return if state.isolation_level == :fiber

      # What the boot has leased is the thread's: no fiber would ever find it and give it back.
      ActiveRecord::Leases.release
      state.isolation_level = :fiber
    end
    private_class_method :isolate
  end
end
