# frozen_string_literal: true

require_relative "../parts"

module Fairlead
  # Rack::Timeout knows a request by its thread, and raises in that: here it would meet whichever request runs there at the
  # moment. So it is given something else to raise in: the request's fiber.
  #
  # A request that waits is told where it waits. One that computes or blocks in a call is told at its next wait.
  module RackTimeout
    # What it takes for the request's thread.
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

      # It has ended in time, so that its fiber may have another request by now.
      def over! = @over = true

      # @api private
      def alive? = @fiber.alive?

      # @api private
      # In the loop's own fiber of its reactor.
      def transfer(*) = (@fiber.raise(@error) unless @over)
    end
    private_constant :Target

    # To be called by whoever serves, once the app is loaded. May be called again.
    #
    # @return [void]
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
