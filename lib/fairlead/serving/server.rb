# frozen_string_literal: true

require_relative "../parts"
require_relative "request_body"
require_relative "body_file"
require "fairlead/fairlead"
require_relative "request"
require_relative "environment_template"
require_relative "reactor_group"
require_relative "../fiber_safety/fork_guard"
require_relative "response_stream"

module Fairlead
  # Serves one Rack app in this process, in the calling thread: the way of a request from the core's FIFO through the
  # app and back.
  class Server
    # What the core is told of the configuration; the units are those of Configuration.
    LIMITS = %i[
      request_line head_size headers body_size body_buffer response_buffer in_flight streams queue_timeout
      queue_target request_timeout idle_timeout head_timeout body_timeout write_timeout health_path
      cancel_abandoned
    ].freeze
    # Seconds of running after which a response counts as long-lived.
    LONG_LIVED = 5
    # Loaded now: when they are needed, there may be no descriptor left to load them with.
    NEEDED_LATER = [
      RequestDeadlines, Offload, RailsRoutes, StrayChild, Stall::Advice, Stall::Culprit, Stall::Snapshot, Stall::Notification, Stall::Reporter
    ].freeze
    private_constant :LIMITS, :LONG_LIVED, :NEEDED_LATER

    # @param app [#call]
    # @param listeners [Array<Listener>] bound and listening
    # @param page [SharedPage, nil] where this worker shows its figures, in its slot
    # @param channels [Array<Array(UNIXSocket, UNIXSocket)>, nil] for each slot its receiving and its sending end
    # @param told [#call, nil] is given each {Stall}, in a thread of its own
    # @param help [Hash, nil] where help is asked for, `at:` an IO, and with which words: `relief:` and `lane:`
    def initialize(app, configuration, listeners, page: nil, slot: 0, channels: nil, help: nil, told: nil)
      %i[async selector].each { |row| Compatibility.fits?(row) }
      @app = app
      @listeners = listeners
      @page = page
      @slot = slot
      @access_log = AccessLog.for(configuration)
      Offload.threads = configuration.offload_threads
      @early_hints = configuration.early_hints
      @streams_bodies = configuration.stream_request_bodies
      @older_rack = Rack.release < "3.1"
      @loop = Loop.new(limits(configuration))
      listeners.each { |listener| @loop.listen(listener.io.fileno, listener.unix?, EnvironmentTemplate.template(listener)) }
      @channels = channels
      join if page
      @ready = false
      @group = assemble(configuration, replaced: !help.nil?)
      @group.on_refusals { log_refusals } if @access_log
      observe_stalls(configuration, told)
      @loop.router = RailsRoutes if defined?(::ActionDispatch::Routing)
      @loop.ask_for_help_at(help[:at].fileno, *help.values_at(:relief, :lane)) if help
    end

    # Serves until it is drained or stopped.
    #
    # @yield once it serves
    def run
      Isolation.establish
      @sequel = SequelPools.loaded?
      Drivers.establish
      ThreadVariables.establish
      ResponseStream::Writers.establish
      RackTimeout.establish
      Graphql.establish
      ExconSockets.establish
      KeptLocals.establish
      NameLookup.establish
      WorkingFolder.establish
      ForkGuard.establish
      ForkGuard.servers << self
      @group.run do
        @stall_reporter.start
        @ready = true
        show_state(2)
        yield if block_given?
      end
    ensure
      @ready = false
      ForkGuard.servers.delete(self)
      @stall_reporter.stop
      @loop.close
    end

    # @return [Boolean] whether it serves
    def ready? = @ready

    # Takes no new connections, finishes what runs, and then has {#run} return. Safe in any thread, and in a trap.
    #
    # @param handover [Boolean] idle connections go to a sibling, or get one more answer; else they are closed
    def drain(handover: false)
      @group.ask do
        show_state(3)
        @loop.drain(handover)
        @listeners.each(&:close) # a backlog that nobody empties would keep clients waiting
        watch_the_end
      end
    end

    # Ends at once; what runs is cancelled, and what waits is not served: their clients are told so. Safe in any thread, and
    # in a trap.
    def stop
      @group.ask do
        @loop.give_up
        log_refusals if @access_log
        @group.finish
      end
    end

    # Has whoever drives the loop call the block. Safe in any thread.
    def ask(&) = @group.ask(&)

    # @return [Hash] what this process does now
    def counts = @loop.counts

    # @api private
    # In the child of a fork: connections on their way from one worker to another are in here.
    def leave = @channels&.flatten&.each(&:close)

    private

    def assemble(configuration, replaced:)
      lost = replaced ? configuration.stuck_timeout.to_f : 0
      options = { lost:, drain: configuration.drain_timeout }
      return ReactorGroup.new(@loop, **options) { |request| answer(request) } unless deadlines?(configuration)

      deadlines = RequestDeadlines.new(@loop, cancels_abandoned: configuration.cancel_abandoned)
      ReactorGroup.new(@loop, deadlines:, **options) { |request| deadlines.during(request) { answer(request) } }
    end

    def deadlines?(configuration) = configuration.request_timeout || configuration.cancel_abandoned

    # One request, in a serving fiber.
    def answer(request)
      body_file = BodyFile.receive(request.env) unless request.whole? || @streams_bodies
      request.env["rack.early_hints"] = request.method(:early_hints) if @early_hints
      request.env["HTTP_VERSION"] = request.env["SERVER_PROTOCOL"] if @older_rack # Sinatra goes by it there
      status, headers, body = @app.call(request.env)
      body ||= [] # as other servers take it, where there is nothing to send
      send_parts(request, headers, body) unless request.respond(status, headers, body)
    rescue ClientGone => error
      request.abandon
    rescue BodyFile::NotStored => error
      report(request, error)
      request.respond(507, { "content-type" => "text/plain" }, ["Insufficient Storage\n"])
    rescue Exception => error # an app may raise anything; the fiber must live on
      apologise(request, error)
    ensure
      begin
        complete(request, status, headers, body, error)
      ensure
        body_file&.close
      end
    end

    # A body that is not an Array, or a large one.
    def send_parts(request, headers, body)
      scheduler = Fiber.scheduler
      if request.takes_over?
        hand_over(request, header(headers, "rack.hijack") || body)
      elsif body.respond_to?(:each)
        lives_long(request) if event_stream?(headers)
        body.each do |part|
          ServingFiber.becomes_stream
          ResponseStream.write(request, part, scheduler)
          request.becomes_stream if request.duration - request.queue_time > LONG_LIVED
        end
        ResponseStream.finish(request)
      else
        lives_long(request)
        ResponseStream.serve(request, scheduler, body)
      end
    end

    # The app talks to the client itself, behind the head of a response.
    def hand_over(request, callback)
      raise InvalidResponse, "nobody to talk to the client: the body does not respond to call" unless callback.respond_to?(:call)

      lives_long(request)
      callback.call(socket = request.take_over)
      request.finish
    rescue Exception
      socket&.close
      raise
    end

    # It may be silent for any time: what its client does is bounded, not what the app does.
    def lives_long(request)
      ServingFiber.becomes_stream
      request.becomes_stream
      request.limit_time(nil)
    end

    def event_stream?(headers)
      type = header(headers, "content-type")
      type.is_a?(String) && type.start_with?("text/event-stream")
    end

    # Rack 2 asks of headers only that they respond to `each`.
    def header(headers, wanted)
      headers.each { |name, value| return value if wanted.casecmp?(name.to_s) }
      nil
    end

    # The app has raised.
    def apologise(request, error)
      return StrayChild.leave(error) if @loop.forgotten?
      return request.abandon if error.is_a?(Async::Cancel) && @group.ending?

      @loop.count_error
      report(request, error)
      return request.abandon if request.committed? || request.timed_out?

      request.respond(500, { "content-type" => "text/plain" }, ["Internal Server Error\n"])
    rescue Error, ClientGone
      request.abandon
    end

    def report(request, error)
      env = request.env
      env["rack.errors"].puts("fairlead: #{env["REQUEST_METHOD"]} #{Fairlead.escape(env["PATH_INFO"].to_s)}: " \
        "#{error.full_message(highlight: false, order: :top)}")
    rescue StandardError
      nil # a broken log must not take the fiber
    end

    # Each step happens, whatever the one before raises, and if it kills its fiber.
    def complete(request, status, headers, body, error)
      StrayChild.leave(nil) if @loop.forgotten?
      request.abandon unless request.answered?
      guard(request) { Stall::Notification.log(request.env, @stall_reporter) } if @development
      guard(request) { body.close } if body.respond_to?(:close)
    ensure
      conclude(request, status, headers, error)
    end

    def conclude(request, status, headers, error)
      each_of(request.after_reply, request, &:call)
    ensure
      begin
        finished = request.finished
        each_of(finished.reverse, request) { |callback| callback.call(request.env, status, headers, error) } unless finished.empty?
      ensure
        give_back(request)
      end
    end

    def give_back(request)
      guard(request) { ActiveRecord::LeaseCleanup.release }
      guard(request) { SequelPools.close_abandoned } if @sequel
      guard(request) { @access_log.write(request, request.env, request.status.nonzero?, request.bytes_sent) } if @access_log
    end

    def each_of(callbacks, request, &)
      while (callback = callbacks.shift)
        guard(request) { yield callback }
      end
    ensure
      each_of(callbacks, request, &) unless callbacks.empty?
    end

    def observe_stalls(configuration, told)
      @development = configuration.environment == "development"
      env_of = ->(fiber) { ServingFiber.request_of(fiber)&.env }
      @stall_reporter = Stall::Reporter.new(@loop, limit: configuration.stall_report, env_of:, mark: @development) do |stall|
        told&.call(stall)
        Stall::Notification.publish(stall) unless stall.lasting
      end
    end

    def guard(request)
      yield
    rescue Exception => error
      report(request, error)
    end

    def log_refusals = @loop.refusals.each { |refusal| @access_log.refused(*refusal) }

    def limits(configuration)
      limits = LIMITS.to_h { |name| [name, configuration.public_send(name)] }
      limits[:in_flight] = [limits[:in_flight], most_fibers].min
      limits[:body_size] = [limits[:body_size], (1 << 63) - 1].min
      limits[:note_refusals] = !@access_log.nil?
      limits
    end

    # Each fiber's stack takes two or three of the memory maps that the system allows a process.
    def most_fibers
      return 10_000 unless Platform::LINUX

      [Integer(File.read("/proc/sys/vm/max_map_count"), 10) / 3, 100].max
    rescue SystemCallError, ArgumentError
      10_000
    end

    def join
      receiving = @channels&.at(@slot)&.first
      sending = @channels.to_a.map { |_, sender| sender.fileno }
      @loop.join(@page, @slot, receiving&.fileno, sending)
    end

    def show_state(state) = @page&.write(@slot, :state, state)

    # The loop is drained when its last connection has gone.
    def watch_the_end
      Async::Task.new(Fiber.scheduler, transient: true) do
        # What siblings sent before they saw that we drain is here by then.
        loop do
          sleep(0.01)
          break if @loop.drained?
        end
        @group.finish
      end.run
    end
  end
end
