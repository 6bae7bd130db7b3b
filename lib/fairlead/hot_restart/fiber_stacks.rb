# frozen_string_literal: true

module Fairlead
  # How deep the calls of a request may go. By default Ruby gives a fiber a half of a thread's machine stack and an eighth of its VM stack,
  # and a page that a thread renders, with partials in partials, raises SystemStackError in a fiber. Ruby reads the sizes from its
  # environment as it starts. A stack takes memory only as deep as it is used.
  module FiberStacks
    VM = "RUBY_FIBER_VM_STACK_SIZE"
    MACHINE = "RUBY_FIBER_MACHINE_STACK_SIZE"
    # Bytes: a thread's, and a quarter for what calls the app.
    MACHINE_SIZE = RubyVM::DEFAULT_PARAMS[:thread_machine_stack_size] * 5 / 4
    private_constant :VM, :MACHINE, :MACHINE_SIZE

    class << self
      # Starts this process anew, with the sizes of a thread, unless they have been set. To be called before the app is loaded, by a
      # command that does nothing but serve.
      #
      # @return [void]
      # @yieldreturn [StartCommand, nil] nil: it is unknown, and nothing changes.
      def ensure
        return if ENV.key?(VM) || !small?

        command = yield
        command.again(variables) if command&.repeatable?
      rescue SystemCallError => error
        Log.say "Fibers keep small stacks, since this process could not be started anew: #{error.message}."
      end

      # @return [Hash{String => String}] for the environment of a process.
      def variables
        { VM => RubyVM::DEFAULT_PARAMS[:thread_vm_stack_size].to_s, MACHINE => ENV.fetch(MACHINE, MACHINE_SIZE).to_s }
      end

      # @return [Boolean] whether threads go deeper.
      def small? = RubyVM::DEFAULT_PARAMS.values_at(:fiber_vm_stack_size, :thread_vm_stack_size).reduce(:<)
    end
  end
end
