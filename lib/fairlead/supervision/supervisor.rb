# frozen_string_literal: true

require_relative "../parts"

module Fairlead
  # The process that serves nothing itself: it binds the addresses, loads the app, forks the workers, replaces
  # those that end, and passes on what it is told by signals.
  #
  # | signal    |                                                            |
  # | --------- | ---------------------------------------------------------- |
  # | TERM, INT | the workers finish what runs, and all ends; again: at once |
  # | HUP       | replaces the workers one by one; no request fails          |
  # | TTIN      | one worker more                                            |
  # | TTOU      | one worker less                                            |
  # | USR1      | reopens the logs, here and in all workers                  |
  # | USR2      | starts new code, to which this process gives way           |
  #
  # What should be done with the workers when is decided by {WorkerTable}, and done by {WorkerTable::Processes}.
  class Supervisor
    include Preparation

    SIGNALS = %i[TERM INT HUP TTIN TTOU USR1 USR2 CHLD].freeze
    private_constant :SIGNALS

    # @param configuration [Configuration]
    # @param app [#call, nil] an app that is loaded already; nil: it is loaded from the configuration's
    #   `rackup`, here or, without `preload`, in each worker.
    # @param parent [ParentLink, nil] the first process, which starts new code; nil: this is the first.
    # @param again [StartCommand, nil] how it was started. Without a parent it takes this process' place when USR2 or {RestartFile}
    #   asks for it.
    def initialize(configuration, app: nil, parent: nil, again: nil)
      @configuration = configuration
      @app = app
      @parent = parent
      @again = again
      @dismissed_by = []
    end

    # Serves until TERM or INT, or {#stop}. The traps that were set before are set again when it returns.
    #
    # @raise [ConfigurationError] before anything is served.
    # @return [Integer] the exit status.
    # @raise [BootError] if the app cannot be loaded, or no worker can be started.
    def run
      return serve_alone if @configuration.workers.zero?

      prepare
      supervise
      raise BootError, @processes.hopeless if @processes.hopeless

      heed # who has spoken last is heard, too
      start_again(@again) if @begins_again
      0
    ensure
      end_rehearsal
      close_premises
      @processes&.close
      @control_server&.close
      @signals&.restore
      Fairlead.page = nil
    end

    # Drains, and ends {#run}. May be called from any thread.
    def stop
      @foreground ? @foreground.stop : @signals&.note(:TERM)
    end

    private

    def serve_alone
      raise ConfigurationError, "#{@configuration.source(:workers)}: `workers 0` needs a full restart." if @parent

      @foreground = Foreground.new(@configuration, app: @app, again: @again)
      @foreground.run
      0
    end

    def prepare
      Fairlead.serving!
      Fairlead.configuration = @configuration
      @banner = Banner.new(@configuration, pid: known_as)
      @banner.open
      open_premises
      Process.setproctitle("fairlead: supervisor [#{@configuration.tag}]")
      @app ||= AppLoader.load(@configuration) if @configuration.preload
      Yjit.enable(@configuration) if @app
      make_table
      prepare_forks
      @jobs = SolidQueueProcess.for(@configuration, @app)
      @control_server = ControlServer.new(@configuration, addresses, pid: known_as, generation: @parent&.generation.to_i,
                                              named: @again&.folder)
      @terminal = $stdin.tty? && terminal?
      @restart_file = @again&.then { |launch| RestartFile.new(launch.folder) }
      @watchdog&.loaded
      @signals = Signals.new(*SIGNALS)
    end

    # The process id by which the server is known.
    def known_as = @parent&.pid || Process.pid

    def make_table
      count = @configuration.workers
      slots = [[2 * count + 8, Configuration::MAXIMUM_SLOTS].min, count + 2].max
      @workers = WorkerTable.new(count, slots:, boot_timeout: @configuration.boot_timeout,
                                    drain_timeout: @configuration.drain_timeout)
      page = Fairlead.page = SharedPage.new(slots)
      make_budgets(@configuration.database_connections, slots) if @configuration.database_connections
      @processes = WorkerTable::Processes.new(@workers, @configuration, @listeners, app: @app, page:, budgets: @budgets) do
        leave
      end
    end

    def make_budgets(most, slots)
      ActiveRecord::Budget.check(most)
      @budgets = Budgets.new(most, slots, elsewhere: @parent&.kept.to_a)
      @exchange = Budgets::Exchange.new(@budgets)
    end

    def prepare_forks
      # Once, for all workers.
      require "fairlead/serving/server"
      @configuration.run_hook(:before_fork)
      # Compacts, and marks what is there as old: more of it stays shared.
      Process.warmup if Process.respond_to?(:warmup)
    rescue StandardError, ScriptError => error
      raise BootError, "The hook before_fork failed.\n#{diagnose(error)}"
    end

    def supervise
      until over?
        @processes.attend(monotonic)
        announce
        wait
        heed
        @processes.take_in(monotonic) { |message, pid| hear(message, pid) }
        listen_to_parent
        @control_server.answer_clients { @control_server.state.request_pool_reports(@workers) }
        restart_by_file if !@workers.stopping? && @restart_file&.touched?(monotonic)
        attend_to_budgets(monotonic) if @budgets
        attend_to_watchdog if @watchdog && !@retired
        attend_to_rehearsal { begin_again }
        attend_to_jobs
      end
    end

    def over?
      @workers.stopping? && @workers.empty? && @jobs&.pid.nil? && @budgets&.over?(monotonic) != false
    end

    # Until something happens: a signal, a message, or a time that was waited for.
    def wait
      now = monotonic
      deadlines = [@processes.deadline(now), @budgets&.deadline(now), @jobs&.deadline,
                   @rehearsal&.deadline,
                   *(@restart_file&.deadline unless @workers.stopping?),
                   *(@watchdog&.deadline unless @retired)].compact
      ios = [@processes, @control_server, @budgets, @rehearsal].compact.flat_map(&:ios)
      IO.select([@signals.io, @parent&.io, *ios].compact, nil, nil, deadlines.min && [deadlines.min - now, 0].max)
    end

    def heed = @signals.take.each { |signal| handle(signal) }

    def handle(signal)
      case signal
      when :TERM, :INT then dismiss(:signal)
      when :HUP then @terminal && !terminal? ? dismiss(:signal) : restart
      when :TTIN then resize(:grow, "There is no room for another worker.")
      when :TTOU then resize(:shrink, "The last worker stays.")
      when :USR1 then reopen_logs
      when :USR2 then renew
      end
    end

    # Starts new code. That is the business of the first process.
    def renew
      return if @dismissed_by.any?

      @parent ? @parent.renew : begin_again_if_possible(file: false)
    end

    def restart_by_file
      @parent ? @parent.renew : begin_again_if_possible(file: true)
    end

    # Where no new code can be started beside the old.
    def begin_again_if_possible(file:)
      return refuse_to_renew unless @again

      rehearse(file:) unless @workers.stopping?
    end

    def begin_again
      announce_start_of(@again)
      @begins_again = true
      @notifier.reloading
      @workers.stop
    end

    # The first process has logged it.
    def note_failure(description)
      @control_server.restart_failed(description)
      @budgets&.take_back
    end

    # New code serves.
    def retire
      return if @workers.stopping?

      @processes.retire
      @listeners.each(&:close)
      @control_server.close
      @retired = true
    end

    def listen_to_parent
      return unless @parent

      messages, gone = @parent.receive
      messages.each do |message|
        case message
        when Messages::Leave then retire
        when Messages::Dismiss then dismiss(:parent)
        when Messages::Reopen then reopen_logs
        when Messages::Failed then note_failure(message.description)
        when Messages::Keeps, Messages::Wish then @exchange&.hear(message)
        end
      end
      return unless gone

      @parent = nil
      Log.say "The first process has gone: what runs is finished, and the server ends."
      dismiss(:parent) unless @workers.stopping?
    end

    def attend_to_budgets(now)
      @budgets.attend(now) { |slot, server, count| @processes.spare(slot, server, count) }
      @budgets.leave_to_others(now, @processes.busy) if @retired
      @exchange.attend(now, @parent)
    end

    # The first time what runs is finished; the second time all ends. Where there is a parent, it alone knows which is the second:
    # a signal that goes to all processes comes from there, too.
    #
    # @param by [Symbol] :signal or :parent.
    def dismiss(by)
      return (stop_now if by == :parent || !@parent) if @dismissed_by.include?(by)

      end_rehearsal
      @dismissed_by << by
      @begins_again = false
      return if @workers.stopping? # it makes way for new code already

      @notifier.stopping
      @parent&.dismissed if by == :signal
      # No more connections are taken in here that no worker would accept.
      @listeners.each(&:close)
      @workers.stop
    end

    def stop_now
      @workers.stop_now
      @jobs&.hurry(monotonic)
    end

    # Once all serve: code that cannot serve shall do nothing else either.
    def attend_to_jobs
      @jobs&.attend(monotonic, stopping: @workers.stopping?) { leave_all } if @announced || @workers.stopping?
    end

    def restart
      return if @workers.stopping?

      @notifier.reloading
      @configuration.run_hook(:on_restart)
      @workers.restart
      @jobs&.restart(monotonic)
      @restarting = true
      Log.say "The workers are being restarted, one by one."
    rescue StandardError, ScriptError => error
      Log.say "The hook on_restart failed, and nothing is restarted.\n#{diagnose(error)}"
      @notifier.ready(addresses)
    end

    def resize(change, refusal)
      return if @workers.stopping?

      Log.say(@workers.public_send(change) ? "There are to be #{@workers.size} workers now." : refusal)
    end

    def reopen_logs
      Log.reopen
      @processes.reopen_logs
    end

    # Says that all serve: once at the start, and after each restart.
    def announce
      return if @workers.stopping? || !@workers.complete?

      unless @announced
        @announced = true
        @banner.serving(addresses)
        @parent ? @parent.serving(@listeners) : @notifier.ready(addresses)
        @control_server.serving!
        attend_to_jobs
      end
      return unless @restarting && !@workers.restarting?

      @restarting = false
      Log.say(if @workers.restart_given_up? then "The restart is given up; the workers that serve go on."
              else "The workers have been restarted."
              end)
      @notifier.ready(addresses)
    end

    def hear(message, pid)
      message.is_a?(Messages::Pong) ? @watchdog&.answered(pid) : @control_server.handle(message, pid)
    end

    def attend_to_watchdog
      serving = @workers.select { |worker| worker.serving? && !worker.lane? }
      @watchdog.attend(monotonic, serving.map(&:pid)) { |pid| @workers[pid].channel&.tell(Messages::Ping.new) }
    end

    # In any child.
    def leave
      @processes.leave
      @signals.close
      @control_server.close
      @jobs&.close
      @parent&.close
      @rehearsal&.close
    end

    # In one that serves nothing.
    def leave_all
      leave
      @listeners.each(&:close)
    end

    # Of an error in a hook.
    def diagnose(error)
      ErrorReport.new(error, file: @configuration.file || @configuration.rackup, debug: @configuration.debug)
    end
  end
end
