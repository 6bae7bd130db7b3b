# frozen_string_literal: true

module Fairlead
  # Makes ActiveSupport, ActiveRecord and Sequel keep their state by fiber instead of by thread. With many requests in the fibers of one
  # thread, `:thread` would make them share one database connection, one CurrentAttributes and one Time.zone.
  module Isolation
    # Prepended to Fiber's singleton class: a scheduled fiber outlives the one that started it, and has state of its own.
    module Scheduled
      def schedule(*, **)
        return super unless block_given?

        super do
          FiberOwner.own_state
          yield
        end
      end
    end
    private_constant :Scheduled

    # Call it once the app is loaded, in a process that serves. May be called again.
    def self.establish
      SequelPools.isolate
      return unless load_state

      isolate(::ActiveSupport::IsolatedExecutionState)
      ActiveRecord.prepare if ActiveRecord.loaded?
      return if @established

      @established = true
      require "active_support/concurrency/share_lock"
      require "fairlead/integrations/rails/reload_lock" if Compatibility.fits?(:share_lock)
      require "active_support/lazy_load_hooks"
      # The first hook is of Live itself, but came with Rails 8.1.4.
      %i[action_controller_live action_controller].each { |hook| ::ActiveSupport.on_load(hook) { RailsLive.install } }
      ::ActiveSupport.on_load(:active_record) { ActiveRecord.prepare }
    end

    # A request may load ActiveSupport later, and must not find :thread then. Nothing else is loaded: the whole of ActiveSupport
    # would leave something in the storage that every fiber inherits.
    #
    # @return [Boolean] false: the app has no ActiveSupport.
    def self.load_state
      require "active_support/isolated_execution_state"
      true
    rescue LoadError
      false
    end

    def self.isolate(state)
      return if state.isolation_level == :fiber && state.scope.equal?(FiberOwner)

      # The thread holds what the boot has leased: no fiber would find it and give it back.
      ActiveRecord::LeaseCleanup.release
      state.isolation_level = :fiber
      require "async" # its tasks have state of their own
      FiberOwner.track
      Fiber.singleton_class.prepend(Scheduled)
      # ActiveSupport keeps the state in an attribute of the object that its scope returns as the current one.
      state.instance_variable_set(:@scope, FiberOwner)
      raise ConfigurationError, UNKNOWN unless shared_and_cleared?(state)
    end
    private_class_method :load_state, :isolate

    UNKNOWN = "This version of ActiveSupport keeps its isolated state (CurrentAttributes, Time.zone, database connections) in " \
              "a way that Fairlead does not know. Requests could see each other's state, so it is not served. " \
              "Use a version of Rails that this version of Fairlead supports, or update Fairlead."
    private_constant :UNKNOWN

    # Whether fibers share the state of their owner, and whether {FiberState} can clear it.
    def self.shared_and_cleared?(state)
      fiber = Fiber.new do
        FiberOwner.own_state
        state[:fairlead_probe] = 1
        shared = Enumerator.new { |values| values << (state[:fairlead_probe] == 1 && state.context) }.next
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
