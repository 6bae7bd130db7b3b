# frozen_string_literal: true

module Fairlead
  # Gives each request thread variables of its own. Many gems keep a request's state there (Sentry its hub, older versions of
  # I18n the locale), since in other servers a thread serves one request at a time. Here its fibers serve many.
  #
  # Within a request `Thread.current.thread_variable_get` and the like refer to the request's own variables: there are none at its
  # beginning, and they are gone at its end. Fibers and tasks that the request starts share them; threads that it starts have
  # theirs, as everywhere. Outside of requests nothing changes.
  class ThreadVariables
    # A key of fiber storage: what a request starts inherits it, and it goes with the request.
    KEY = :fairlead_thread_variables
    # Emptied instead of removed, as in {FiberState}.
    CONCURRENT_LOCALS = :concurrent_thread_locals
    private_constant :KEY, :CONCURRENT_LOCALS

    # Prepended to Thread while Fairlead serves.
    module Redirection
      def thread_variable_get(name)
        own = ThreadVariables.of(self)
        own ? own.values[name.to_sym] : super
      end

      def thread_variable_set(name, value)
        own = ThreadVariables.of(self)
        own ? own.set(name.to_sym, value) : super
      end

      def thread_variable?(name)
        own = ThreadVariables.of(self)
        own ? own.values.key?(name.to_sym) : super
      end

      def thread_variables
        own = ThreadVariables.of(self)
        own ? own.values.keys : super
      end
    end

    class << self
      # @return [void]
      def establish = ::Thread.prepend(Redirection)

      # @return [ThreadVariables, nil] those of the present request, if it runs in that thread.
      def of(thread)
        own = Fiber[KEY]
        one = thread.equal?(::Thread.current) && serving_fiber
        # Tasks that outlive their request, and threads that it has started, find them in their storage.
        return (own if own&.of?(thread)) unless one

        variables = one.thread_variables ||= new
        variables.equal?(own) ? own : Fiber[KEY] = variables
      end

      # For a fiber that runs in another thread for the one whose storage it has.
      def borrow
        own = Fiber[KEY]
        Fiber[KEY] = new(own.values) if own
      end

      private

      # @return [ServingFiber, nil] of the request that the fiber works for, or that has started its task.
      def serving_fiber
        owner = FiberOwner.current
        one = owner.fairlead_serving_fiber and return one
        task = owner.async_task
        while task.is_a?(::Async::Task) # else it is the scheduler
          one = task.fiber&.fairlead_serving_fiber
          return one if one

          task = task.parent
        end
      end
    end

    # @return [Hash{Symbol => Object}]
    attr_reader :values

    def initialize(values = {})
      @thread = ::Thread.current
      @values = values
    end

    def of?(thread) = @thread.equal?(thread)

    def set(name, value)
      value.nil? ? @values.delete(name) : @values[name] = value
      value
    end

    # At the end of the request.
    def clear
      @values.keep_if { |name, value| name == CONCURRENT_LOCALS && value.clear }
    end
  end
end
