# frozen_string_literal: true

module Fairlead
  # Serves in this very process, without workers: for development, where a debugger's prompt wants the terminal.
  # No process is forked, so the hooks around forks do not run, and nothing serves while new code is loaded.
  #
  # | signal    | |
  # | --------- | --- |
  # | TERM, INT | finishes running requests and ends; a second one ends at once |
  # | HUP       | the same once: its terminal has closed, or a script asks for a restart that nobody could do |
  # | USR1      | reopens the logs |
  # | USR2      | loads the new code in another process; then finishes running requests, and the command replaces this process |
  class Foreground
    include Preparation

    # Those that end it. Before the app is loaded, they end it at once.
    SIGNALS = %i[TERM INT HUP].freeze
    # They change the number of workers elsewhere. In a terminal they belong to its shell, which suspends a process that reads or
    # writes there from the background.
    JOB_CONTROL = %i[TTIN TTOU].freeze
    private_constant :SIGNALS, :JOB_CONTROL

    # @param start_command [StartCommand, nil] nil: it is unknown, and there is no restart.
    # @param app [#call, nil] nil: it is loaded from the configuration's `rackup`.
    def initialize(configuration, start_command, app: nil)
      @configuration = configuration
      @start_command = start_command
      @app = app
      @restarts = 0
    end

    # Serves until TERM, INT or HUP, or {#stop}.
    #
    # @return [Integer] the exit status.
    # @raise [ConfigurationError, BootError]
    def run
      ForkGuard.holders << self
      @pid_file = PidFile.new(@configuration.pidfile, at: @configuration.source(:pidfile))
      @pid_file.write
      # What asks for a restart while the app is loaded is not lost.
      @restart_file = RestartFile.new(@start_command.folder) if @start_command
      @signals = Signals.new(:USR1, :USR2)
      open_log_and_addresses
      Fairlead.page = SharedPage.new(1)
      @metrics = Metrics.new(Fairlead.page, ServerStatus.new(@control_address))
      @observer = ObserverProcess.for(@configuration, @metrics_listeners, @metrics, once: true)
      @acme = ACMEProcess.for(@configuration, once: true)
      update_side_processes
      @app ||= AppLoader.load(@configuration)
      @jobs = SolidQueueProcess.for(@configuration, @app, once: true)
      update_side_processes
      AppLoader.enable_yjit(@configuration)
      serve
      side_processes.each { |one| one.finish { process_signals } }
      replace_process if @successors
      0
    ensure
      release
    end

    # Finishes running requests, and ends {#run}. May be called from any thread.
    def stop = @signals&.record(:TERM)

    # @api private
    # In a child that the app forks: it may outlive this process, and would keep addresses taken and the side processes running.
    def close_channels
      [*side_processes, *@listeners, *@metrics_listeners, *@successors, @control_server, @rehearsal].compact.each(&:close)
    end

    private

    def side_processes = [@jobs, @acme, @observer].compact

    # The observer answers until the last request has ended.
    def update_side_processes(stopping: false)
      [@jobs, @acme].each { |one| update(one, stopping:) }
      update(@observer, stopping: false)
    end

    def update(side_process, stopping:)
      side_process&.update(Clock.now, stopping:) do
        @listeners.each(&:close)
        (side_processes - [side_process]).each(&:close)
      end
    end

    # At the end of {#run}, however far it came.
    def release
      ForkGuard.holders.delete(self)
      stop_rehearsal
      @signals&.restore
      side_processes.each(&:finish)
      close_successors
      [*@listeners, *@metrics_listeners].each(&:close)
      Fairlead.page = nil
      @pid_file&.remove
    end

    def serve
      Platform.report_crashes
      Fairlead.page.write(0, :pid, Process.pid)
      Fairlead.page.write(0, :began_us, (Clock.now * 1_000_000).to_i)
      ActiveRecord::WorkerBudget.set_up(@configuration.database_connections) if @configuration.database_connections
      @control_server = ControlServer.new(@configuration, addresses, named: @start_command&.folder, address: @control_address,
                                                                    certificates: @certificates) do
        processes = { observer: @observer&.pid, solid_queue: @jobs&.pid, certificates: @acme&.pid }.compact
        { processes:, problems: side_processes.filter_map(&:problem) }
      end
      app = ACMEChallenges.around(MetricsEndpoint.around(@app, @configuration, @metrics), @configuration)
      @server = Server.new(app, @configuration, @listeners, public_files: PublicFiles.for(@app, @configuration),
                                                            error_pages: ErrorPages.folder(@app, @configuration), page: Fairlead.page,
                                                            slot: 0, on_stall: @control_server.method(:add))
      @signals.add(*SIGNALS, *(JOB_CONTROL unless terminal?))
      @watchdog&.loaded
      control = Thread.new { control_loop }
      control.name = "fairlead control"
      Integrations.establish
      @server.run do
        @control_server.serving!
        @acme&.open
        @banner.serving(addresses, @metrics_listeners.map(&:uri))
        @service_manager.ready(addresses)
      end
    ensure
      control&.kill&.join
      @control_server&.close
    end

    # The second thread. Once the process drains, @deadline says for how long.
    def control_loop
      loop do
        IO.select([@signals.io, @rehearsal&.io, *@control_server.ios].compact, nil, nil, patience)
        next stop_server if @deadline && Clock.now >= @deadline

        @control_server.answer_clients { report_own_figures }
        update_side_processes(stopping: !@deadline.nil?)
        @watchdog&.check(Clock.now, [:server]) { @server.ask { @watchdog.answered(:server) } }
        restart("#{RestartFile::PATH} has been touched. ") if @restart_file&.touched?
        check_rehearsal
        # This thread is killed in the end: it handles the signals that it has taken, and leaves the others.
        Thread.handle_interrupt(Object => :never) { process_signals }
      end
    end

    def report_own_figures
      Metrics.publish_process(Fairlead.page, 0)
      PoolReports.collect do |pools|
        @control_server.handle(Messages::Shown.new(pools:, requests: @server.requests), Process.pid)
      end
    end

    def process_signals = @signals.take.each { |signal| Log.contain(signal) { handle(signal) } }

    def handle(signal)
      case signal
      when :USR1
        Log.reopen
        side_processes.each(&:reopen_logs)
      when :USR2 then restart
      when :HUP, :TERM, :INT
        return drain unless @deadline

        close_successors # the command is not to begin anew any more
        stop_now unless signal == :HUP
      end
    end

    # The end of a child is no event here: the app may have children too.
    def patience
      times = [@deadline, @rehearsal&.deadline, *@watchdog&.deadline].compact
      [*(1.0 if side_processes.any? || @restart_file), *times.map { |time| [time - Clock.now, 0].max }].min
    end

    # A rehearsal that is under way may have loaded code that is older than this.
    def restart(reason = nil)
      return if @deadline

      stop_rehearsal
      @reason = reason
      @control_server.restart_begun(@restarts += 1)
      return fail_restart("Hot restart is unavailable: the start command is unknown.") unless @start_command

      @rehearsal = Rehearsal.new(@start_command, timeout: @configuration.boot_timeout)
    rescue SystemCallError => error
      fail_restart("The command cannot be run: #{error.message}.")
    end

    def stop_rehearsal
      @rehearsal&.stop
      @rehearsal = nil
    end

    def check_rehearsal
      result = @rehearsal&.result or return
      @rehearsal = nil
      return begin_anew if result.is_a?(Messages::Ready)

      fail_restart(result.description)
    end

    def fail_restart(description)
      Log.say "The new code could not be started; the old code continues to serve.\n#{description}"
      @control_server.restart_failed(description)
    end

    def begin_anew
      Log.say "#{@reason}Running requests are finished, then `#{@start_command}` replaces this process."
      # The server closes its own as it ends.
      @successors = (@listeners + @metrics_listeners).map(&:successor)
      drain
    end

    def stop_now
      @jobs&.stop_now(Clock.now)
      @server.stop
    end

    def drain
      stop_rehearsal
      @successors ? @service_manager.reloading : @service_manager.stopping
      @server.drain
      @deadline = Clock.now + @configuration.longest_drain
    end

    def stop_server
      @server.stop
      @deadline = Clock.now + @configuration.longest_drain
    end

    # Unless the process has been told to end meanwhile.
    def replace_process
      %i[TERM INT HUP].each { |signal| Signal.trap(signal, "DEFAULT") } # from now on they end the process
      return if @signals.take.intersect?(%i[TERM INT HUP])

      @service_manager.well if @watchdog
      @start_command.exec(@successors)
    rescue SystemCallError => error
      raise BootError, "The server has ended, and could not be started again by `#{@start_command}`: #{error.message}."
    end

    def close_successors
      @successors&.each(&:close)
      @successors = nil
    end
  end
end
