# frozen_string_literal: true

module Fairlead
  # What puts a serving fiber back to clean after a request, so that nothing of it leaks into the next one:
  #
  # - fiber-locals (`Thread.current[:key]`),
  # - fiber storage (`Fiber[:key]`),
  # - ActiveSupport's isolated state (CurrentAttributes, Time.zone, the stack of `connected_to`, …),
  # - other attributes that gems have added to fibers (OpenTelemetry its context).
  #
  # Each is put back key by key to what it was when the fiber was born; what a request added goes, but for {KeptLocals}. All else on
  # the fiber is left alone (async keeps its task there). Thread variables are {ThreadVariables}'s business.
  #
  # A serving fiber must be born clean: from the boot's fiber or from a serving fiber between two requests,
  # never from within one, whose fiber storage it would inherit.
  #
  # @example the life of a serving fiber
  #   state = Fairlead::FiberState.capture
  #   loop { answer(request); state.restore }
  class FiberState
    # Kept and emptied instead of removed. concurrent-ruby registers this array, and a finalizer of the fiber,
    # each time that it finds none: one of each would be left behind for every request.
    CONCURRENT_LOCALS = :concurrent_fiber_locals
    private_constant :CONCURRENT_LOCALS

    # ActiveSupport keeps its state in this attribute of Fiber under `isolation_level = :fiber`. Read as an
    # instance variable, since ActiveSupport may be loaded late or never.
    ACTIVE_SUPPORT_STATE = :@active_support_execution_state

    # Ruby's own, async's, and ours: not a request's.
    STEADY = /\A(storage|async_task|annotation|fairlead_.*|active_support_execution_state)=\z/
    private_constant :STEADY

    # Looked up once, when the first fiber serves and the app is loaded: for ten thousand fibers it would be dear.
    #
    # @return [Array<Symbol>] the instance variables of what gems have added with Fiber.attr_accessor.
    def self.attributes
      @attributes ||= Fiber.instance_methods(false).grep(/\w=\z/).grep_v(STEADY).map { |name| :"@#{name.name.chomp("=")}" }.freeze
    end

    # @return [FiberState] the state of the current fiber, to which {#restore} will return it
    def self.capture = new

    # @api private
    def initialize
      @fiber = Fiber.current
      @thread = Thread.current
      @locals = @thread.keys.to_h { |key| [key, @thread[key]] }.freeze
      @storage = (@fiber.storage || {}).freeze
      @attributes = self.class.attributes.to_h { |name| [name, @fiber.instance_variable_get(name)] }.freeze
    end

    # Puts the current fiber back to the state captured. To be called by the fiber that captured it, once a
    # request's own code is done (its body closed, `rack.response_finished` run).
    #
    # Costs no more than three looks when nothing was left behind.
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
