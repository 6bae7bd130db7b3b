# frozen_string_literal: true

module Fairlead
  # Puts a serving fiber back to its state at birth after a request, so that nothing leaks into the next one:
  #
  # - fiber-locals (`Thread.current[:key]`),
  # - fiber storage (`Fiber[:key]`),
  # - ActiveSupport's isolated state (CurrentAttributes, Time.zone, the stack of `connected_to`, …),
  # - other attributes that gems have added to fibers (OpenTelemetry its context).
  #
  # Keys that a request added go, except for {KeptLocals}. All else on the fiber is left alone: async keeps its task there.
  # {ThreadVariables} sees to thread variables.
  #
  # The scheduler's own fiber must make serving fibers: within a request, they would inherit its fiber storage.
  #
  # @example the life of a serving fiber
  #   state = Fairlead::FiberState.new
  #   loop { answer(request); state.restore }
  class FiberState
    # Emptied instead of removed. concurrent-ruby registers this array, and a finalizer of the fiber, each time that it finds
    # none: each request would leave one behind.
    CONCURRENT_LOCALS = :concurrent_fiber_locals
    private_constant :CONCURRENT_LOCALS

    # ActiveSupport keeps its state in this attribute of Fiber under `isolation_level = :fiber`. Read as an
    # instance variable, since ActiveSupport may be loaded late or never.
    ACTIVE_SUPPORT_STATE = :@active_support_execution_state

    # Attributes of Ruby, async and Fairlead: not a request's.
    STEADY = /\A(storage|async_task|annotation|fairlead_.*|active_support_execution_state)=\z/
    private_constant :STEADY

    # Looked up once, when the first fiber serves and the app is loaded.
    #
    # @return [Array<Symbol>] the instance variables behind what gems have added with Fiber.attr_accessor.
    def self.attributes
      @attributes ||= Fiber.instance_methods(false).grep(/\w=\z/).grep_v(STEADY).map { |name| :"@#{name.name.chomp("=")}" }.freeze
    end

    # Captures the state of the current fiber, to which {#restore} will return it.
    def initialize
      @fiber = Fiber.current
      @thread = Thread.current
      @locals = @thread.keys.to_h { |key| [key, @thread[key]] }.freeze
      @storage = (@fiber.storage || {}).freeze
      @attributes = self.class.attributes.to_h { |name| [name, @fiber.instance_variable_get(name)] }.freeze
    end

    # Puts the current fiber, which must be the one that captured the state, back to it. Called once a request's own code is done:
    # its body closed, `rack.response_finished` run.
    def restore
      keys = @thread.keys
      restore_locals(keys) unless keys.empty? && @locals.empty?

      # A copy; nil where nothing was ever stored.
      storage = @fiber.storage
      restore_storage(storage) if storage && !(storage.empty? && @storage.empty?)

      @attributes.each { |name, value| @fiber.instance_variable_set(name, value) } unless @attributes.empty?
      isolated = @fiber.instance_variable_get(ACTIVE_SUPPORT_STATE)
      @fiber.instance_variable_set(ACTIVE_SUPPORT_STATE, nil) if isolated
      nil
    end

    private

    def restore_locals(keys)
      keys.each do |key|
        next if @locals.key?(key)

        next @thread[key].clear if key == CONCURRENT_LOCALS

        # Assigning nil removes the key.
        @thread[key] = nil unless KeptLocals.keep?(key, @thread[key])
      end
      @locals.each { |key, value| @thread[key] = value unless value.equal?(@thread[key]) }
    end

    def restore_storage(storage)
      storage.each_key { |key| Fiber[key] = nil unless @storage.key?(key) }
      @storage.each { |key, value| Fiber[key] = value unless value.equal?(storage[key]) }
    end
  end
end
