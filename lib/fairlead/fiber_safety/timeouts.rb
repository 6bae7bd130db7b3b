# frozen_string_literal: true

require "timeout"

module Fairlead
  # Makes Timeout.timeout work in fibers as in threads. Versions before 0.6 raise Timeout::Error itself in fibers: any `rescue`
  # within the block takes it, and Net::HTTP sends the request again.
  module Timeouts
    # Extends the exception of one timeout, so that a thread raises this very object.
    module Expiry
      def exception(*) = self
    end

    EXIT = ::Timeout::ExitException
    private_constant :EXIT

    # (see Timeout.timeout)
    def timeout(seconds, error_class = nil, message = nil, &)
      masked = ::Fiber.current_scheduler.nil? && (::Fiber.current.fairlead_section || ::Fiber.scheduler)
      return super if ::Fiber.current_scheduler.nil? && !masked

      message ||= "execution expired"
      error = error_class ? error_class : EXIT.new(message).extend(Expiry)
      begin
        masked ? Timeouts.let_through(error, message) { |expiry| super(seconds, expiry, message, &) } : super(seconds, error, message, &)
      rescue EXIT => exit
        ::Kernel.raise unless exit.equal?(error)
        ::Kernel.raise ::Timeout::Error, message
      end
    end

    # In a thread: a timeout interrupts the section that it began in, and a fiber that blocks its reactor. No other exception
    # passes the section's mask.
    #
    # @api private
    def self.let_through(error, message)
      error = error.exception(message).extend(Expiry) unless error.is_a?(Expiry)
      ::Thread.handle_interrupt(error.singleton_class => :immediate) { yield error }
    end

    # Prepended to Timeout, for classes that include it.
    module Included
      private

      def timeout(...) = ::Timeout.timeout(...)
    end

    ::Timeout.singleton_class.prepend(Timeouts)
    ::Timeout.prepend(Included)
  end
end
