# frozen_string_literal: true

module Fairlead
  # Answers requests, each in a serving fiber: calls the app, sends what it returns, and then runs what is due at a request's end.
  class RequestHandler
    # Seconds of running after which a response counts as long-lived.
    LONG_LIVED = 5
    # Errors of an app's own code.
    MISTAKES = [NameError, TypeError].freeze
    # Ruby's own, which error classes override.
    CAUSE = Exception.instance_method(:cause)
    # Headers by which the app itself says where its body ends, or that the client's connection is what matters.
    FRAMED = /\A(?:content-length|transfer-encoding|rack\.hijack)\z/i
    private_constant :LONG_LIVED, :MISTAKES, :CAUSE, :FRAMED

    # @param app [#call]
    # @param loop [Loop]
    # @param configuration [Configuration]
    # @param access_log [AccessLog, nil]
    def initialize(app, loop, configuration, access_log)
      @app = app
      @loop = loop
      @access_log = access_log
      @deadlines = RequestDeadlines.new(loop, configuration)
      @compression = Compression.new(secrets: configuration.compress_private) if configuration.compress
      @early_hints = configuration.early_hints
      @streams_bodies = configuration.stream_request_bodies
      @older_rack = Rack.release < "3.1"
    end

    # @return [RequestDeadlines]
    attr_reader :deadlines
    # @return [ReactorGroup] whose reactors call it.
    attr_writer :group

    # @param request [Request]
    def call(request)
      @deadlines.start(request) if @deadlines.every_request?
      answer(request)
    ensure
      @deadlines.finish(request)
      @group.wake(request.id) # tasks and threads that still read or write for it are told that it has ended
    end

    private

    def answer(request)
      body_file = BodyFile.receive(request.env) unless request.whole? || @streams_bodies
      request.env["rack.early_hints"] = request.method(:early_hints) if @early_hints
      request.env["HTTP_VERSION"] = request.env["SERVER_PROTOCOL"] if @older_rack # Sinatra reads it
      status, headers, body = @app.call(request.env)
      body ||= [] # other servers accept nil where there is nothing to send
      parts = body
      headers, parts = @compression.apply(request.env, status, headers, body) if @compression
      file = ResponseFile.open(parts) unless parts.is_a?(Array)
      parts = whole(headers, parts) unless file
      send_parts(request, headers, parts) unless respond(request, status, headers, parts, file)
    rescue ClientGone, ServerStopping => error
      request.abandon
    rescue BodyFile::NotStored => error
      report(request, error)
      request.respond(507, { "content-type" => "text/plain" }, ["Insufficient Storage\n"])
    rescue Exception => error # an app may raise anything; the fiber must live on
      render_500(request, error)
    ensure
      begin
        finish(request, status, headers, body, error)
      ensure
        body_file&.close
        file&.close
      end
    end

    # An Array in place of a body that can be one, since its length is known. By the Rack specification `to_ary` closes the body.
    def whole(headers, body)
      return body if body.is_a?(Array) || !body.respond_to?(:to_ary)

      headers.each { |name, _| return body if FRAMED.match?(name.to_s) }
      array = body.to_ary
      array.is_a?(Array) ? array : body
    end

    def respond(request, status, headers, body, file)
      file ? request.respond_with_file(status, headers, body, file.fileno) : request.respond(status, headers, body)
    end

    # A body that is not an Array, or a large one.
    def send_parts(request, headers, body)
      scheduler = Fiber.scheduler
      if request.takes_over?
        hand_over(request, header(headers, "rack.hijack") || body)
      elsif body.respond_to?(:each)
        begin_events(request, body) if request.event_stream?
        body.each do |part|
          ServingFiber.begins_response
          ResponseStream.write(request, part, scheduler)
          becomes_long_lived(request) if request.duration - request.queue_time > LONG_LIVED
        end
        ResponseStream.finish(request)
      else
        mark_long_lived(request)
        ResponseStream.serve(request, scheduler, body)
      end
    end

    # The app talks to the client itself, behind the head of a response.
    def hand_over(request, callback)
      raise InvalidResponse, "nobody to talk to the client: the body does not respond to call" unless callback.respond_to?(:call)

      mark_long_lived(request)
      callback.call(socket = request.take_over)
      request.finish
    rescue Exception
      socket&.close
      raise
    end

    def begin_events(request, body)
      body.event_stream = request if body.is_a?(Compression::Body)
      mark_long_lived(request)
    end

    # The response may be silent for any time: the client's time is limited, not the app's.
    def mark_long_lived(request)
      ServingFiber.becomes_stream
      becomes_long_lived(request)
      request.limit_time(nil)
    end

    def becomes_long_lived(request)
      request.mark_long_lived
      @deadlines.begin_stream(request)
    end

    # Rack 2 asks of headers only that they respond to `each`.
    def header(headers, wanted)
      headers.each { |name, value| return value if wanted.casecmp?(name.to_s) }
      nil
    end

    # The app has raised.
    def render_500(request, error)
      return StrayChild.end_process(error) if @loop.forgotten?
      return request.abandon if error.is_a?(Async::Cancel) && @group.ending?
      return request.abandon if wraps_interruption?(request, error)

      @loop.count_error
      report(request, error)
      return request.abandon if request.committed? || request.timed_out?

      request.respond(500, { "content-type" => "text/plain" }, ["Internal Server Error\n"])
    rescue Error, ClientGone, ServerStopping
      request.abandon
    end

    # Apps and gems wrap what they rescue. A mistake in a clean-up, and an error about another request's client, are errors like others.
    def wraps_interruption?(request, error)
      return false unless error.is_a?(StandardError) && MISTAKES.none? { |type| type === error }
      return false unless request.gone? || request.half_closed? || request.stopped?

      error = CAUSE.bind_call(error) until error.nil? || error.is_a?(ClientGone) || error.is_a?(ServerStopping)
      !error.nil?
    end

    def report(request, error)
      env = request.env
      env["rack.errors"].puts("fairlead: #{env["REQUEST_METHOD"]} #{Fairlead.escape(env["PATH_INFO"].to_s)}: " \
        "#{error.full_message(highlight: false, order: :top)}")
    rescue StandardError
      nil # a broken log must not take the fiber
    end

    # Each step happens, whatever the one before raises, and if it kills its fiber.
    def finish(request, status, headers, body, error)
      StrayChild.end_process(nil) if @loop.forgotten?
      request.abandon unless request.answered?
      guard(request) { body.close } if body.respond_to?(:close)
    ensure
      run_callbacks(request, status, headers, error)
    end

    def run_callbacks(request, status, headers, error)
      each_of(request.after_reply, request, &:call)
    ensure
      begin
        finished = request.finished
        each_of(finished.reverse, request) { |callback| callback.call(request.env, status, headers, error) } unless finished.empty?
      ensure
        Cleanup.run { |failure| report(request, failure) }
        guard(request) { @access_log.write(request, request.env, request.status.nonzero?, request.bytes_sent) } if @access_log
      end
    end

    def each_of(callbacks, request, &)
      while (callback = callbacks.shift)
        guard(request) { yield callback }
      end
    ensure
      each_of(callbacks, request, &) unless callbacks.empty?
    end

    def guard(request)
      yield
    rescue Exception => error
      report(request, error)
    end
  end
end
