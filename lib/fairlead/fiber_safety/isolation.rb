# frozen_string_literal: true

module Fairlead
  # Makes ActiveSupport, ActiveRecord and Sequel go by fiber instead of by thread. With many requests in the fibers of
  # one thread, `:thread` would have them share one database connection, one CurrentAttributes, one Time.zone.
  module Isolation
    # Of Object, and of ActiveSupport: an app may load that in a request, which must not find :thread, nor have it changed while
    # others are within transactions.
    module Awaiting
      def const_added(name)
        super
        Isolation.await_definition if name == :ActiveSupport || name == :IsolatedExecutionState
      end
    end

    # Of ActiveSupport::IsolatedExecutionState, from before its own code runs, which ends by choosing :thread.
    module Chosen
      def isolation_level=(*)
        return if isolation_level == :fiber

        super(:fiber)
        Isolation.establish
      end
    end

    # Of Fiber: what a scheduler runs, of whichever kind, goes on beside the fiber that has begun it.
    module Scheduled
      def schedule(*, **)
        return super unless block_given?

        super do
          FiberOwner.own_state
          yield
        end
      end
    end
    private_constant :Awaiting, :Chosen

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
      return await_definition unless defined?(::ActiveSupport::IsolatedExecutionState)

      isolate(::ActiveSupport::IsolatedExecutionState)
      ActiveRecord.prepare if ActiveRecord.loaded?
      return if @established

      @established = true
      require "active_support/concurrency/share_lock"
      require "fairlead/integrations/rails/reload_lock" if Compatibility.fits?(:share_lock)
      require "active_support/lazy_load_hooks"
      # The first one is told of Live itself, but came with Rails 8.1.4.
      %i[action_controller_live action_controller].each { |hook| ::ActiveSupport.on_load(hook) { Live.install } }
      ::ActiveSupport.on_load(:active_record) { ActiveRecord.prepare }
    end

    # Isolates ActiveSupport as it is loaded.
    #
    # @api private
    def self.await_definition
      space = defined?(::ActiveSupport) ? ::ActiveSupport : ::Object
      if space.equal?(::Object) || space.autoload?(:IsolatedExecutionState) || !space.const_defined?(:IsolatedExecutionState, false)
        space.singleton_class.prepend(Awaiting)
      else
        space::IsolatedExecutionState.singleton_class.prepend(Chosen)
      end
    end

    # The app had asked for :thread.
    #
    # @api private
    def self.overruled! = @overruled = true

    # @return [Boolean] whether the app had asked for :thread.
    def self.overruled? = @overruled ? true : false

    def self.isolate(state)
      return if state.isolation_level == :fiber && state.scope.equal?(FiberOwner)

      # What the boot has leased is the thread's: no fiber would ever find it and give it back.
      ActiveRecord::LeaseCleanup.release
      state.isolation_level = :fiber
      require "async" # whose tasks have state of their own
      FiberOwner.track
      Fiber.singleton_class.prepend(Scheduled)
      # ActiveSupport keeps the state in an attribute of what its scope says is current.
      state.instance_variable_set(:@scope, FiberOwner)
      raise ConfigurationError, UNKNOWN unless shared_and_cleared?(state)
    end
    private_class_method :isolate

    UNKNOWN = "This version of ActiveSupport keeps its isolated state (CurrentAttributes, Time.zone, database connections) in " \
              "a way that Fairlead does not know. Requests could see each other's state, so it is not served. " \
              "Use a version of Rails that this version of Fairlead supports, or update Fairlead."
    private_constant :UNKNOWN

    # Whether fibers share the state of their owner, and whether {FiberState} can clear it.
    def self.shared_and_cleared?(state)
      fiber = Fiber.new do
        FiberOwner.own_state
        state[:fairlead_probe] = 1
        shared = Fiber.new { state[:fairlead_probe] == 1 && state.context }.resume
        Fiber.current.instance_variable_set(FiberState::ACTIVE_SUPPORT_STATE, nil)
        shared.equal?(Fiber.current) && state[:fairlead_probe].nil?
      end
      fiber.resume && state[:fairlead_probe].nil? && Fiber.method_defined?(:async_task=)
    rescue NoMethodError
      false
    end
    private_class_method :shared_and_cleared?
  end
end
