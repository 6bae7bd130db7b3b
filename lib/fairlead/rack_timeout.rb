# frozen_string_literal: true

require_relative "parts"

module Fairlead
  # Rack::Timeout knows a request by its thread, and raises in that: here it would meet whichever request runs there at the
  # moment. So it is given something else to raise in: the request's fiber.
  #
  # A request that waits is told at its wait, and one in a call that blocks without Ruby's lock, as that returns. One that
  # computes is told when it comes to either.
  module RackTimeout
    # Seconds until a request that was found in no call is looked at again.
    AGAIN = 0.02
    private_constant :AGAIN

    # What it takes for the request's thread.
    class Target
      # @param clock [Rack::Timeout::Scheduler]
      def initialize(scheduler, clock)
        @scheduler = scheduler
        @clock = clock
        @fiber = Fiber.current
        @id = Reactor.request_of(@fiber)&.id
      end

      # From any thread. (see Thread#raise)
      def raise(error, *rest)
        @error = error.exception(*rest)
        tell
      end

      # It has ended in time, so that its fiber may have another request by now.
      def over! = @over = true

      # @api private
      # (see Scheduler#raise_in_call)
      def put_off
        @told = false
        @scheduler.unblock(nil, self)
      end

      # @api private
      def alive? = @fiber.alive?

      # @api private
      # In the loop's own fiber of its reactor.
      def transfer(*)
        return if @over || @told

        @told = true
        @fiber.raise(@error)
      end

      private

      def tell
        return if @over || @told || (@id && tell_in_call)

        @scheduler.unblock(nil, self)
        @clock.run_in(AGAIN) { tell } if @id
      end

      def tell_in_call
        @told = true
        @told = false unless @scheduler.raise_in_call(@id, @fiber, @error, self)
        @told
      end
    end
    private_constant :Target

    # To be called by whoever serves, once the app is loaded. May be called again.
    #
    # @return [void]
    def self.establish
      ::Rack::Timeout::Scheduler::Timeout.prepend(self) if defined?(::Rack::Timeout::Scheduler::Timeout)
    end

    # (see Rack::Timeout::Scheduler::Timeout#timeout)
    def timeout(seconds)
      scheduler = Fiber.current_scheduler
      return super unless seconds&.positive? && scheduler.is_a?(Scheduler)

      target = Target.new(scheduler, @scheduler)
      job = @scheduler.run_in(seconds) { @on_timeout.call(target) }
      yield
    ensure
      target&.over!
      job&.cancel!
    end
  end
end
