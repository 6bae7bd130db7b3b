# frozen_string_literal: true

require_relative "../parts"
require_relative "request_body"
require_relative "body_file"
require_relative "response_file"
require "fairlead/fairlead"
require_relative "request"
require_relative "environment_template"
require_relative "reactor_group"
require_relative "../fiber_safety/fork_guard"
require_relative "response_stream"
require_relative "request_handler"
require_relative "request_notification"
require_relative "running_requests"
require_relative "slow_requests"
require_relative "wait_notes"

module Fairlead
  # Serves one Rack app in this process: assembles the core's loop, the reactors, and the handler of
  # requests, runs them, and ends them.
  class Server
    # What the core is told of the configuration; the units are those of Configuration.
    LIMITS = %i[
      request_line head_size headers body_size body_buffer response_buffer in_flight streams queue_timeout
      queue_target request_timeout idle_timeout head_timeout body_timeout write_timeout health_path
      redirect_to_https hsts
      cancel_abandoned event_stream_keepalive
    ].freeze
    # Loaded now: when they are needed, there may be no descriptor left to load them with.
    NEEDED_LATER = [
      RequestDeadlines, Offload, RailsRoutes, RunningRequests, ScheduledCall, StrayChild,
      Compression::Body, Compression::Encoders, Compression::Secrets,
      Stall::Advice, Stall::Culprit, Stall::Snapshot, Stall::Notification, Stall::Reporter
    ].freeze
    private_constant :LIMITS, :NEEDED_LATER

    # @param app [#call]
    # @param listeners [Array<Listener>] bound and listening
    # @param page [SharedPage, nil] where this worker shows its figures, in its slot
    # @param channels [Array<Array(UNIXSocket, UNIXSocket)>, nil] for each slot its receiving and its sending end
    # @param public_files [PublicFiles, nil] what the core serves before the app
    # @param error_pages [String] the folder of {ErrorPages}
    # @param on_stall [#call, nil] receives each {Stall}, in a thread of its own
    # @param supervisor [Hash, nil] `socket:` an IO to it, and the messages that request a worker, `relief:` and `lane:`
    def initialize(app, configuration, listeners, public_files: PublicFiles.for(app, configuration),
                   error_pages: ErrorPages.folder(app, configuration), page: nil, slot: 0, channels: nil, supervisor: nil, on_stall: nil)
      %i[async selector].each { |row| Compatibility.fits?(row) }
      @listeners = listeners
      @page = page
      @slot = slot
      @access_log = AccessLog.for(configuration)
      Offload.threads = configuration.offload_threads
      @loop = Loop.new(limits(configuration))
      public_files&.serve(@loop)
      ErrorPages.load(error_pages, @loop)
      listeners.each { |listener| listen(listener) }
      @channels = channels
      join if page
      @ready = @draining = false
      @drain_timeout = configuration.drain_timeout
      @group = assemble(app, configuration, replaced: !supervisor.nil?)
      @group.on_rejections { log_rejections } if @access_log
      @loop.server_timing = configuration.server_timing
      @slow = SlowRequests.new(@loop)
      @running = RunningRequests.new(@loop, @group.method(:selectors))
      observe_stalls(configuration, on_stall)
      @loop.router = RailsRoutes if defined?(::ActionDispatch::Routing)
      SharedPage.name_routes_by_action = !defined?(::ActionDispatch::Routing).nil?
      @loop.connect_supervisor(supervisor[:socket].fileno, *supervisor.values_at(:relief, :lane)) if supervisor
    end

    # Serves until it is drained or stopped.
    #
    # @yield once it serves
    def run
      ThreadVariables.establish
      KeptLocals.establish
      NameLookup.establish
      WorkingFolder.establish
      ForkGuard.establish
      ForkGuard.servers << self
      renewals = @listeners.filter_map(&:certificates).uniq.each(&:refresh).map(&:watch)
      @group.run do
        @stall_reporter.start
        @ready = true
        show_state(WorkerState::SERVING) unless @draining # it may have been told to before it served,
        show_state(WorkerState::DRAINING) if @draining # or just now, by another reactor
        yield if block_given?
      end
    ensure
      @ready = false
      ForkGuard.servers.delete(self)
      renewals&.each(&:kill)
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
        @draining = true
        show_state(WorkerState::DRAINING)
        @loop.drain(handover)
        @listeners.each(&:close) # a backlog that nobody empties would keep clients waiting
        watch_the_end
      end
    end

    # Ends at once; what runs is cancelled, and what waits is not served: their clients are told so. Safe in any thread, and
    # in a trap.
    def stop
      @group.ask do
        end_requests(streams: true)
        @group.finish
      end
    end

    # Has whoever drives the loop call the block. Safe in any thread.
    def ask(&) = @group.ask(&)

    # @return [Hash] what this process does now
    def counts = @loop.counts

    # Safe in any thread.
    #
    # @return [Hash, nil] `{ in_flight:, slow: }`, see {RunningRequests#list} and {SlowRequests#list}.
    def requests
      { in_flight: @running.list, slow: @slow.list }
    rescue IOError
      nil # it has ended
    end

    # @api private
    # In the child of a fork: the channels hold connections on their way from one worker to another.
    def close_channels = @channels&.flatten&.each(&:close)

    private

    def listen(listener)
      @loop.listen(listener.io.fileno, listener.unix?, EnvironmentTemplate.for(listener), listener.certificates&.tls, listener.proxied?)
    end

    def assemble(app, configuration, replaced:)
      lost = replaced ? configuration.stuck_timeout.to_f : 0
      @handler = RequestHandler.new(app, @loop, configuration, @access_log)
      @handler.group = ReactorGroup.new(@loop, @handler, deadlines: @handler.deadlines, lost:, drain: configuration.drain_timeout,
                                        drain_streams: configuration.longest_drain, stream_share: configuration.stream_share)
    end

    def observe_stalls(configuration, on_stall)
      development = configuration.environment == "development"
      env_of = ->(fiber) { ServingFiber.request_of(fiber)&.env }
      @stall_reporter = Stall::Reporter.new(@loop, limit: configuration.stall_report, env_of:) do |stall|
        on_stall&.call(stall)
        next if stall.lasting

        Stall::Notification.log(stall) if development
        Stall::Notification.publish(stall)
      end
    end

    def log_rejections = @loop.rejections.each { |rejection| @access_log.rejected(*rejection) }

    def limits(configuration)
      limits = LIMITS.to_h { |name| [name, configuration.public_send(name)] }
      limits[:in_flight] = [limits[:in_flight], most_fibers].min
      limits[:body_size] = [limits[:body_size], (1 << 63) - 1].min
      limits[:record_rejections] = !@access_log.nil?
      limits[:https_port] = @listeners.find(&:https?)&.port || 0
      limits[:trusted_proxies] = Configuration::Network.parse(configuration.trusted_proxies)
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

    # The loop ends when its last connection has gone. Streams may have longer than other requests.
    def watch_the_end
      Async::Task.new(Fiber.scheduler, transient: true) do
        ends_at = Clock.now + @drain_timeout
        # What siblings sent before they saw that we drain is here by then, or another worker gets it.
        until sleep(0.01) && @loop.ended?
          next if Clock.now < ends_at

          @group.ask { end_requests(streams: false) } # another reactor may drive by now
          ends_at = Float::INFINITY
        end
        @group.finish
      end.run
    end

    def end_requests(streams:)
      @loop.stop(streams)
      log_rejections if @access_log
    end
  end
end
