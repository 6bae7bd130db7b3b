# frozen_string_literal: true

# Exceptions that wait for the end of an uninterruptible section of this fiber; nil outside of one.
Fiber.attr_accessor :fairlead_held

module Fairlead
  # Sections that no exception from outside cuts short: taking a lock again, checking a connection in, recording its owner.
  #
  # A deadline, a client that has gone, Timeout and Task#cancel all arrive as Fiber#raise, at any wait, also within `ensure`.
  # Thread.handle_interrupt does not hold that back: it only knows Thread#raise and Thread#kill. Within {run}, Fiber#raise
  # (and a scheduler's own `raise`) is remembered instead, and raised when the section ends. The section may wait, and must
  # end by itself.
  module Uninterruptible
    NEVER = { ::Object => :never }.freeze
    private_constant :NEVER

    # What was raised in a fiber meanwhile: on a scheduler's ready list, it is raised at the fiber's next wait.
    Interruption = Struct.new(:fiber, :arguments, :options) do
      def alive? = fiber.alive?

      def transfer(*) = fiber.raise(*arguments, **options)
    end
    private_constant :Interruption

    # Of Fiber.
    module Raise
      def raise(*arguments, **options) = Uninterruptible.hold(self, arguments, options) ? nil : super
    end

    # Of schedulers, whose selector may raise in a fiber without calling Fiber#raise.
    module SchedulerRaise
      def raise(fiber, *arguments, **options) = Uninterruptible.hold(fiber, arguments, options) ? nil : super
    end

    class << self
      # Runs the block to its end. May be nested: the outermost section raises.
      #
      # @return [Object] what the block returns.
      # @raise [Exception] what another fiber has raised in this one meanwhile; it replaces what the block raises.
      def run(&)
        fiber = ::Fiber.current
        return yield if fiber.fairlead_held

        scheduler = ::Fiber.current_scheduler
        # Threads share one stack of interrupt masks among their fibers: it must not be held while a fiber waits.
        return ::Thread.handle_interrupt(NEVER) { hold_back(fiber, nil, &) } unless scheduler

        prepare(scheduler)
        hold_back(fiber, scheduler, &)
      end

      # @api private
      # @return [Boolean] whether it is raised later.
      def hold(fiber, arguments, options)
        held = fiber.fairlead_held
        return false if held.nil? || fiber.equal?(::Fiber.current)

        held.push(Interruption.new(fiber, arguments, options))
        true
      end

      private

      def hold_back(fiber, scheduler)
        fiber.fairlead_held = held = []
        yield
      ensure
        fiber.fairlead_held = nil
        release(held, scheduler) unless held.empty?
      end

      # Only one can be raised here: the others follow at the fiber's next waits.
      def release(held, scheduler)
        first, *others = held
        others.each { |interruption| scheduler.push(interruption) } if scheduler.respond_to?(:push)
        ::Kernel.raise(*first.arguments, **first.options)
      end

      def prepare(scheduler)
        type = scheduler.class
        type.prepend(SchedulerRaise) if type.method_defined?(:raise) && !type.include?(SchedulerRaise)
      end
    end

    ::Fiber.prepend(Raise)
  end
end
