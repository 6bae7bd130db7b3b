# frozen_string_literal: true

module Fairlead
  # The span that an instrumentation of OpenTelemetry makes for a request, be it Rack's or another's. Fairlead has it begin with the first
  # byte of the request, gives it the time that the request waited until the app was called (`fairlead.queue_time`, in seconds), and
  # adds an event for each stall.
  class ServerSpan
    # Prepended to OpenTelemetry::SDK::Trace::Tracer.
    module Tracer
      def start_span(name, kind: nil, start_timestamp: nil, attributes: nil, **)
        return super unless kind == :server && (request = ServerSpan.next_request)

        start_timestamp ||= Time.now - request.duration
        attributes = { **(attributes || {}), QUEUE_TIME => request.queue_time.round(6) }
        span = super
        request.env[Stall::Snapshot::LISTENER] = ServerSpan.new(span, request.env)
        span
      end
    end

    # Prepended to OpenTelemetry::SDK::Trace::Span.
    module Span
      def finish(...)
        ServerSpan.of_this_request(self)&.complete if kind == :server
        super
      end
    end

    QUEUE_TIME = "fairlead.queue_time"
    EVENT = "fairlead.stall"
    # Frames of a stall's backtrace.
    FRAMES = 30
    private_constant :Tracer, :Span, :EVENT, :FRAMES

    class << self
      # Call it once the app is loaded, in a process that serves. May be called again.
      def establish
        return unless defined?(::OpenTelemetry::SDK::Trace::Span) && Compatibility.fits?(:opentelemetry_spans)

        ::OpenTelemetry::SDK::Trace::Tracer.prepend(Tracer)
        ::OpenTelemetry::SDK::Trace::Span.prepend(Span)
      end

      # @return [Request, nil] of the present fiber, if that has no such span yet.
      # @api private
      def next_request
        request = ServingFiber.request_of(Fiber.current)
        request unless request.nil? || request.env.key?(Stall::Snapshot::LISTENER)
      end

      # @return [ServerSpan, nil]
      # @api private
      def of_this_request(span)
        known = ServingFiber.request_of(Fiber.current)&.env&.[](Stall::Snapshot::LISTENER)
        known if known.is_a?(self) && known.span.equal?(span)
      end
    end

    attr_reader :span

    def initialize(span, env)
      @span = span
      @env = env
      @known = []
    end

    # The span is about to end: the reporter may not have come to the latest stalls yet.
    def complete
      Stall::Reporter.unreported(@env).each { |stall| call(stall) } if @span.recording?
    end

    # @param stall [Stall]
    def call(stall)
      return if @known.include?(stall.id) || !@span.recording?

      @known << stall.id
      attributes = { "kind" => stall.kind, "seconds" => stall.seconds.round(6), "at" => stall.at, "gem" => stall.gem }.compact
      @span.add_event(EVENT, timestamp: Time.at(stall.time), attributes: {
        **attributes.transform_keys { |name| "#{EVENT}.#{name}" },
        "code.stacktrace" => stall.backtrace.first(FRAMES).join("\n")
      })
    end
  end
end
