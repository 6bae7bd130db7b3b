# frozen_string_literal: true

module Fairlead
  # A worker, from its fork to its end. Its main thread awaits the server's end; a second one reads the supervisor's messages and takes
  # signals.
  class Worker
    # The exit status of a worker that could not start, or whose server failed.
    FAILED = 1
    # The user has to change something before any worker can start (EX_CONFIG of sysexits.h).
    REFUSED = 78
    # The most descriptors that macOS allows, whatever it says.
    OPEN_MAX = 10_240
    private_constant :OPEN_MAX

    # @param app [#call, nil] nil: it is loaded here.
    # @param metrics [Metrics]
    # @param handoff [Array<Array(UNIXSocket, UNIXSocket)>] see {ConnectionHandoff#pairs}.
    def initialize(row, channel:, configuration:, app:, listeners:, page:, handoff:, metrics:, database: nil)
      @row = row
      @channel = channel
      @configuration = configuration
      @app = app
      @listeners = listeners
      @page = page
      @handoff = handoff
      @metrics = metrics
      @database = database
      @lock = Thread::Mutex.new
    end

    # @return [Integer] the exit status.
    def run
      ForkGuard.holders << self
      set_up_process
      Thread.new { control_loop }.name = "fairlead control"
      start
      Integrations.establish
      @server.run { @channel.post(Messages::Ready.new) }
      @configuration.run_hook(:before_worker_exit, @row.index)
      0
    rescue StandardError, ScriptError, SystemStackError => error
      fail_with(error)
    end

    # @api private
    # In a child that the app forks.
    def close_channels = [@channel, *@listeners, *@handoff.flatten, @database].compact.each(&:close)

    private

    def set_up_process
      name = @row.regular? ? "worker #{@row.index}" : "#{@row.kind} worker #{@row.index}"
      Process.setproctitle("fairlead: #{name} [#{@configuration.tag}]")
      @signals = Signals.new(:TERM, :INT, :USR1)
      %i[HUP USR2].each { |signal| Signal.trap(signal, Signals::NOTHING) }
      %i[CHLD TTIN TTOU].each { |signal| Signal.trap(signal, "DEFAULT") }
      raise_descriptor_limit
      Platform.report_crashes
    ensure
      Log.redirect(@configuration.log) if @configuration.log
    end

    # Each connection takes a descriptor.
    def raise_descriptor_limit
      soft, hard = Process.getrlimit(:NOFILE)
      [hard, OPEN_MAX].each do |most|
        return Process.setrlimit(:NOFILE, most, hard) if most > soft
      rescue Errno::EPERM, Errno::EINVAL
        next
      end
    end

    def start
      @app ||= AppLoader.load(@configuration)
      AppLoader.enable_yjit(@configuration)
      ActiveRecord::WorkerBudget.set_up(@configuration.database_connections, share: @database, page: @page, slot: @row.slot) if @database
      @configuration.run_hook(:after_fork, @row.index)
      app = ACMEChallenges.around(MetricsEndpoint.around(@app, @configuration, @metrics), @configuration)
      server = Server.new(app, @configuration, @listeners, public_files: PublicFiles.for(@app, @configuration),
                          error_pages: ErrorPages.folder(@app, @configuration), page: @page, slot: @row.slot, channels: @handoff,
                          on_stall: ->(stall) { @channel.post(Messages::Stalled.new(stall: stall.brief.to_h)) },
                          supervisor: { socket: @channel.io, relief: Messages.dump(Messages::Relief.new),
                                        lane: Messages.dump(Messages::Lane.new) })
      @lock.synchronize { @server = server }
    end

    # The second thread. It ends with the process.
    def control_loop
      signals = 0
      deadline = nil
      loop do
        sources = [@signals.io, (@channel.io unless deadline)].compact
        readable, = IO.select(sources, nil, nil, deadline && [deadline - Clock.now, 0].max)
        next end_process if readable.nil?

        @signals.take.each do |signal|
          signals += 1 unless signal == :USR1
          Log.contain(signal) { handle_signal(signal, signals) }
        end
        deadline = process_messages if readable.include?(@channel.io)
      end
    end

    # @return [Float, nil] when to end at the latest, if the supervisor has gone.
    def process_messages
      messages, closed = @channel.receive
      messages.each { |message| Log.contain(message) { handle(message) } }
      return unless closed

      Log.say "Worker #{@row.index} has lost its supervisor: it finishes running requests and ends."
      drain(handover: false)
      Clock.now + @configuration.longest_drain
    end

    # @param count [Integer] how many signals have come that end it.
    def handle_signal(signal, count)
      return Log.reopen if signal == :USR1

      count == 1 ? drain(handover: false) : stop
    end

    def handle(message)
      case message
      when Messages::Drain then drain(handover: message.handover)
      when Messages::Stop then stop
      when Messages::Reopen then Log.reopen
      when Messages::Show
        Metrics.publish_process(@page, @row.slot)
        PoolReports.collect { |pools| @channel.post(Messages::Shown.new(pools:, requests: @server&.requests)) }
      when Messages::Ping then @lock.synchronize { @server&.ask { @channel.post(Messages::Pong.new) } }
      when Messages::Spare then ActiveRecord::WorkerBudget.numbered(message.server)&.give_up_idle(message.count)
      end
    end

    # There is no supervisor that would kill this process.
    def end_process
      stop
      sleep(WorkerTable::GRACE)
      Process.exit!(FAILED)
    end

    # A worker that boots has nothing to finish.
    def drain(handover:)
      @lock.synchronize { @server ? @server.drain(handover:) : Process.exit!(0) }
    end

    def stop
      @lock.synchronize { @server ? @server.stop : Process.exit!(0) }
    end

    # The supervisor reports a worker that could not boot, once for all tries.
    def fail_with(error)
      description = error.message if error.is_a?(Error)
      # Once the app is loaded, a mistake of the user's is in a hook.
      hooks = @configuration.file || @configuration.rackup
      description ||= ErrorReport.new(error, file: hooks, debug: @configuration.debug || @server&.ready?).to_s
      if @server&.ready?
        Log.say "Worker #{@row.index} failed: #{description}"
      else
        @channel.post(Messages::Failed.new(description))
      end
      error.is_a?(ConfigurationError) ? REFUSED : FAILED
    end
  end
end
