# frozen_string_literal: true

module Fairlead
  # The parent of the workers, and a child of the {InitProcess}. It serves nothing itself: it binds the addresses, loads the app,
  # forks the workers, and replaces those that end.
  #
  # {WorkerTable} decides what is due, and {WorkerProcesses} does it.
  class Supervisor
    include Preparation

    SIGNALS = %i[TERM INT HUP TTIN TTOU USR1 USR2 CHLD].freeze
    # Newer code serves, and the control socket is still open: seconds between looks at the workers, and until it is closed in any case.
    LOOKS, LOOKS_FOR = 0.01, 1
    private_constant :SIGNALS, :LOOKS, :LOOKS_FOR

    # @param start_command [StartCommand, nil] nil: it is unknown.
    # @param app [#call, nil] nil: it is loaded from the configuration's `rackup`, here or, without `preload`, in each worker.
    def initialize(configuration, start_command, parent, app: nil)
      @configuration = configuration
      @start_command = start_command
      @parent = parent
      @app = app
      @stopped_by = []
    end

    # Serves until it is told to end, or retires. The init process is told why, if this process cannot serve.
    #
    # @return [Integer] the exit status.
    def run
      ForkGuard.holders << self
      prepare
      supervise
      raise BootError, @processes.hopeless if @processes.hopeless

      process_signals # USR2 may have come last: it is passed on
      0
    rescue Error => error
      @parent&.failed(error.message)
      1
    rescue SignalException => error
      128 + error.signo
    ensure
      ForkGuard.holders.delete(self)
      [*@listeners, *@metrics_listeners].each(&:close)
      @processes&.close
      @control_server&.close
      @signals&.restore
      Fairlead.page = nil
    end

    # Drains, and ends {#run}. May be called from any thread.
    def stop = @signals&.record(:TERM)

    # @api private
    # In a child that the app forks here: as it is loaded, in a hook, or in a thread that it has left running.
    def close_channels
      close_in_child
      [@processes, *@listeners, *@metrics_listeners].compact.each(&:close)
    end

    private

    def prepare
      open_log_and_addresses
      Process.setproctitle("fairlead: supervisor [#{@configuration.tag}]")
      create_table
      observe
      @app ||= AppLoader.load(@configuration) if @configuration.preload
      AppLoader.enable_yjit(@configuration) if @app
      create_workers
      prepare_forks
      @jobs = SolidQueueProcess.for(@configuration, @app)
      @acme = ACMEProcess.for(@configuration)
      @control_server = ControlServer.new(@configuration, addresses, pid: @parent.pid, generation: @parent.generation,
                                                                    named: @start_command&.folder, address: @control_address,
                                                                    certificates: @certificates) do
        processes = { init: @parent&.pid, observer: @observer&.pid, solid_queue: @jobs&.pid, certificates: @acme&.pid }.compact
        { processes:, problems: [*side_processes, @processes].filter_map(&:problem) }
      end
      @terminal = $stdin.tty? && terminal?
      @watchdog&.loaded
      @signals = Signals.new(*SIGNALS)
    end

    # The page is there before the app: the observer is forked now, and small.
    def create_table
      count = @configuration.workers
      slots = [[2 * count + 8, Configuration::MAXIMUM_SLOTS].min, count + 2].max
      @workers = WorkerTable.new(count, slots:, boot_timeout: @configuration.boot_timeout,
                                        drain_timeout: @configuration.longest_drain)
      Fairlead.page = SharedPage.new(slots)
    end

    def observe
      @metrics = Metrics.new(Fairlead.page, ServerStatus.new(@control_address))
      @observer = ObserverProcess.for(@configuration, @metrics_listeners, @metrics, open: @parent.generation.zero?)
      update_side_processes
    end

    def create_workers
      create_budget(@configuration.database_connections, @workers.slots) if @configuration.database_connections
      @processes = WorkerProcesses.new(@workers, @configuration, @listeners, app: @app, page: Fairlead.page, budget: @budget,
                                                                             metrics: @metrics) do
        close_in_child
      end
    end

    def create_budget(most, slots)
      ActiveRecord::WorkerBudget.check(most)
      @budget = ConnectionBudget.new(most, slots, elsewhere: @parent.retained)
    end

    def prepare_forks
      require "fairlead/serving/server"
      @configuration.run_hook(:before_fork)
      BootThreads.report
      # Compacts the heap and marks it as old, so that workers share more of it.
      Process.warmup if Process.respond_to?(:warmup)
    rescue StandardError, ScriptError => error
      raise BootError, "The hook before_fork failed.\n#{diagnose(error)}"
    end

    def supervise
      until finished?
        @processes.perform_due(Clock.now)
        report_state
        wait
        process_signals
        @processes.process_events(Clock.now) { |message, pid| handle_message(message, pid) }
        process_parent_messages
        @control_server.answer_clients { @control_server.pool_reports.request(@workers) }
        update_budget(Clock.now) if @budget
        update_watchdog if @watchdog && !@retired
        leave_control(Clock.now) if @retired
        update_side_processes
      end
    end

    def finished?
      @workers.stopping? && @workers.empty? && side_processes.all? { |one| one.pid.nil? } && @budget&.finished?(Clock.now) != false
    end

    def side_processes = [@jobs, @acme, @observer].compact

    def wait
      now = Clock.now
      deadlines = [@processes.deadline(now), @budget&.deadline(now), *side_processes.map(&:deadline)]
      deadlines << @watchdog.deadline if @watchdog && !@retired
      deadlines << (now + LOOKS) if @retired && @control_server.open?
      deadlines.compact!
      ios = [@processes, @control_server, @budget].compact.flat_map(&:ios)
      IO.select([@signals.io, @parent&.io, *ios].compact, nil, nil, deadlines.min && [deadlines.min - now, 0].max)
    end

    def process_signals = @signals.take.each { |signal| Log.contain(signal) { handle(signal, :signal) } }

    # @param source [Symbol] :signal if this process has got it, :parent if the init process has.
    def handle(signal, source)
      case signal
      when :TERM, :INT then stop_by(source)
      when :HUP then @terminal && !terminal? ? stop_by(:signal) : restart_workers # a terminal may hang up twice
      when :TTIN then resize(:grow, "There is no room for another worker.")
      when :TTOU then resize(:shrink, "The last worker stays.")
      when :USR1
        Log.reopen
        @processes.reopen_logs
        side_processes.each(&:reopen_logs)
      when :USR2 then @parent&.post(Messages::Restart.new) if @stopped_by.empty?
      end
    end

    def process_parent_messages
      return unless @parent

      messages, closed = @parent.receive
      messages.each { |message| Log.contain(message) { handle_parent_message(message) } }
      return unless closed

      @parent = nil
      Log.say "The init process has ended: this server finishes running requests and stops."
      stop_by(:parent) unless @workers.stopping?
    end

    def handle_parent_message(message)
      case message
      when Messages::Signaled then handle(message.signal.to_sym, :parent)
      when Messages::Retire then retire
      when Messages::Starting then @control_server.restart_begun(message.generation)
      when Messages::Failed then handle_failed_restart(message.description)
      when Messages::RetainedConnections, Messages::ConnectionRequest then @budget&.handle(message)
      end
    end

    def handle_failed_restart(description)
      @control_server.restart_failed(description)
      @budget&.reclaim
    end

    def retire
      return if @workers.stopping?

      @processes.retire
      [*@listeners, *@metrics_listeners].each(&:close)
      @retired = Clock.now
    end

    # `fairlead restart` waits for it: from now on, every new connection gets the newer code. One that blocks takes none, but says nothing.
    def leave_control(now)
      @control_server.close unless @processes.leaving? && now < @retired + LOOKS_FOR
    end

    # The first time running requests are finished; the second time all ends. A service manager may signal all processes, so only the init
    # process can tell which is the second.
    def stop_by(source)
      return (stop_now if source == :parent) if @stopped_by.include?(source)

      @stopped_by << source
      return @workers.stop if @workers.stopping? # a newer generation serves, or has served

      @service_manager.stopping
      @parent&.post(Messages::Stopping.new) if source == :signal
      # No more connections come in here that no worker would accept.
      @listeners.each(&:close)
      @workers.stop
    end

    def stop_now
      @workers.stop_now
      side_processes.each { |one| one.stop_now(Clock.now) }
    end

    def restart_workers
      return if @workers.stopping?

      @service_manager.reloading
      @configuration.run_hook(:on_restart)
      @workers.restart
      @jobs&.restart(Clock.now)
      @restarting = true
      Log.say "The workers are being restarted, one by one."
    rescue StandardError, ScriptError => error
      Log.say "The hook on_restart failed, and nothing is restarted.\n#{diagnose(error)}"
      @service_manager.ready(addresses)
    end

    def resize(change, refusal)
      return if @workers.stopping?

      Log.say(@workers.public_send(change) ? "The number of workers is now #{@workers.size}." : refusal)
    end

    # Reports that all workers serve: once at the start, and after each restart.
    def report_state
      return if @workers.stopping? || !@workers.complete?

      report_serving unless @serving
      return unless @restarting && !@workers.restarting?

      @restarting = false
      Log.say(@workers.restart_given_up? ? "The restart is given up; the workers that serve stay." : "The workers have been restarted.")
      @service_manager.ready(addresses)
    end

    def report_serving
      @serving = true
      @banner.serving(addresses, @metrics_listeners.map(&:uri))
      @parent&.serving(@listeners + @metrics_listeners, @certificates&.memory)
      @control_server.serving!
      [@observer, @acme].each { |one| one&.open }
      update_side_processes
    end

    def handle_message(message, pid)
      message.is_a?(Messages::Pong) ? @watchdog&.answered(pid) : @control_server.handle(message, pid)
    end

    def update_budget(now)
      @budget.update(now) { |slot, server, count| @processes.spare(slot, server, count) }
      @budget.retire(now, @processes.busy) if @retired
      @budget.report(now, @parent) if @parent
    end

    def update_watchdog
      serving = @workers.select { |worker| worker.serving? && !worker.lane? }
      @watchdog.check(Clock.now, serving.map(&:pid)) { |pid| @workers[pid].channel&.post(Messages::Ping.new) }
    end

    # Jobs run only once all workers serve: a generation that cannot serve must not run them. The observer answers until the last
    # worker has ended.
    def update_side_processes
      [@jobs, @acme].each { |one| update(one, stopping: @workers.stopping?) } if @serving || @workers.stopping?
      update(@observer, stopping: @retired || (@workers.stopping? && @workers.empty?))
    end

    def update(side_process, stopping:)
      side_process&.update(Clock.now, stopping:) do
        close_in_child(except: side_process)
        @processes&.close
        @listeners.each(&:close)
      end
    end

    def close_in_child(except: nil)
      @processes&.close_in_child
      @signals&.close
      @control_server&.close
      (side_processes - [except]).each(&:close)
      @parent&.close
    end

    def diagnose(error)
      ErrorReport.new(error, file: @configuration.file || @configuration.rackup, debug: @configuration.debug)
    end
  end
end
