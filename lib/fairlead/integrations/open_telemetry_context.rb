# frozen_string_literal: true

module Fairlead
  # Has the context of OpenTelemetry flow on to the fibers and tasks that a request makes, and to blocks of {Fairlead.offload}: their
  # spans get the parent that was current when they were made. OpenTelemetry keeps the context in an attribute of the fiber, which
  # nothing inherits. A thread still begins without one: many live on, and their later spans would belong to a request that is over.
  module OpenTelemetryContext
    # A key of fiber storage, which a fiber's fibers inherit as a copy; its value is [context, thread].
    KEY = :fairlead_opentelemetry_context
    private_constant :KEY

    # Call it once the app is loaded, in a process that serves. May be called again.
    def self.establish
      return unless defined?(::OpenTelemetry::Context) && Compatibility.fits?(:opentelemetry_context)

      ::OpenTelemetry::Context.singleton_class.prepend(self)
    end

    # (see OpenTelemetry::Context.attach)
    def attach(...) = super.tap { pass_on }

    # (see OpenTelemetry::Context.detach)
    def detach(...) = super.tap { pass_on }

    # (see OpenTelemetry::Context.clear)
    def clear(...) = super.tap { pass_on }

    private

    def stack = Fiber.current.opentelemetry_context ||= inherited

    def inherited
      context, thread = Fiber[KEY]
      context && (thread.equal?(Thread.current) || Thread.current.is_a?(Offload::Thread)) ? [context] : []
    end

    def pass_on
      context = stack.last
      Fiber[KEY] = context && [context, Thread.current].freeze
    end
  end
end
