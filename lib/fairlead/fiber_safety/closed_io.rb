# frozen_string_literal: true

require_relative "uninterruptible"

# Whether the fiber is closing an IO.
Fiber.attr_accessor :fairlead_closes

module Fairlead
  # Whoever waits for an IO that somebody else closes gets IOError in that very wait, as a thread does.
  #
  # Ruby 4 interrupts such a fiber itself (see Scheduler#fiber_interrupt). Before, it knows of threads only: a fiber that waits
  # in a selector would never wake, and its descriptor's number may be another file's by then.
  module ClosedIO
    # Seconds for which a thread that closes an IO waits until the fiber of another thread has let go.
    PATIENCE = 1
    RUBY_INTERRUPTS = RUBY_VERSION >= "4"
    private_constant :PATIENCE, :RUBY_INTERRUPTS

    # Raises in the wait that a fiber is in, unless that has ended.
    class Interruption
      # @param exception [Exception]
      def initialize(fiber, exception, done = nil)
        @fiber = fiber
        @waits = fiber.fairlead_waits
        @exception = exception
        @done = done
      end

      # On a ready list.
      def alive? = true

      def transfer(*)
        Uninterruptible.raise_in_wait(@fiber, @exception) if @fiber.alive? && @fiber.fairlead_waits == @waits
      ensure
        @done&.push(true)
      end
    end

    %i[close close_read close_write reopen].each do |name|
      define_method(name) { |*arguments, **options| ClosedIO.closing(self) { super(*arguments, **options) } }
    end

    class << self
      # @return [Array<Selector>] those of this process: in the child of a fork, the parent's fibers wait for nothing.
      def selectors
        return @selectors if @process == ::Process.pid

        @process = ::Process.pid
        @selectors = []
      end

      # @api private
      def closing(io)
        wake(io) unless RUBY_INTERRUPTS
        fiber = ::Fiber.current
        before = fiber.fairlead_closes
        fiber.fairlead_closes = true
        yield
      ensure
        fiber.fairlead_closes = before if fiber
      end

      private

      def wake(io)
        selectors.each do |selector|
          waiting = selector.waiting_for(io)
          [*waiting].each { |fiber| interrupt(selector, fiber) unless fiber.equal?(::Fiber.current) } if waiting
        end
      end

      # It lets go before the descriptor is closed.
      def interrupt(selector, fiber)
        error = ::IOError.new("stream closed in another thread")
        scheduler = ::Fiber.current_scheduler
        return scheduler.raise(fiber, in_wait(fiber, error)) if scheduler.respond_to?(:selector) && scheduler.selector.equal?(selector)

        done = ::Thread::Queue.new
        selector.push(Interruption.new(fiber, error, done))
        selector.wakeup
        done.pop(timeout: PATIENCE) unless ::Fiber.scheduler.respond_to?(:selector) && ::Fiber.scheduler.selector.equal?(selector)
      end

      def in_wait(fiber, error) = Uninterruptible::Scope.new(error, fiber.fairlead_section)
    end

    ::IO.prepend(self)
  end
end
