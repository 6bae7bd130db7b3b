# frozen_string_literal: true

module Fairlead
  # Has Rack::Timeout raise in the fiber of a request instead of its thread, where it would hit the request that runs at that
  # moment. A request that computes or blocks gets the error at its next wait.
  module RackTimeout
    # Stands for the request's thread.
    class Target
      def initialize(scheduler)
        @scheduler = scheduler
        @fiber = Fiber.current
      end

      # From any thread. (see Thread#raise)
      def raise(error, *rest)
        @error = Uninterruptible::Scope.new(error.exception(*rest)) { @over }
        @scheduler.unblock(nil, self)
      end

      # The request has ended in time. Its fiber may have another one by now.
      def over! = @over = true

      def alive? = @fiber.alive?

      # Runs in the reactor's own fiber.
      def transfer(*) = (@fiber.raise(@error) unless @over)
    end
    private_constant :Target

    # Call it once the app is loaded, in a process that serves. May be called again.
    def self.establish
      return unless defined?(::Rack::Timeout::Scheduler::Timeout) && Compatibility.fits?(:rack_timeout)

      ::Rack::Timeout::Scheduler::Timeout.prepend(self)
    end

    # (see Rack::Timeout::Scheduler::Timeout#timeout)
    def timeout(seconds)
      scheduler = Fiber.current_scheduler
      return super unless seconds&.positive? && scheduler.is_a?(Scheduler)

      target = Target.new(scheduler)
      job = @scheduler.run_in(seconds) { @on_timeout.call(target) }
      yield
    ensure
      target&.over!
      job&.cancel!
    end
  end
end
