# frozen_string_literal: true

require_relative "parts"

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
  # What should be done when is decided by {Workers}; here it is done.
  class Supervisor
    include Startup

    SIGNALS = %i[TERM INT HUP TTIN TTOU USR1 USR2 CHLD].freeze
    # What a request does that has kept a worker from its loop.
    KEPT_AWAY = { "blocked" => "has been in a call that blocks", "stuck" => "has been in a call that holds Ruby's lock",
                  "computing" => "has been computing" }.freeze
    private_constant :SIGNALS, :KEPT_AWAY

    # @param configuration [Configuration]
    # @param app [#call, nil] an app that is loaded already; nil: it is loaded from the configuration's
    #   `rackup`, here or, without `preload`, in each worker.
    # @param launch [Launch, nil] how it was started; nil: new code cannot be started beside it.
    # @param parent [Parent, nil] the first process, if it is not this one.
    # @param again [Launch, nil] without a launch: what takes its place when USR2 or {RestartFile} asks for it.
    def initialize(configuration, app: nil, launch: nil, parent: nil, again: nil)
      @configuration = configuration
      @app = app
      @launch = launch
      @parent = parent
      @again = again
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
      raise BootError, @hopeless if @hopeless

      start_again(@again) if @begins_again
      @succession&.masters&.any? ? keep : @succession&.status.to_i
    ensure
      close_premises
      @handoff&.close
      @desk&.close
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

      @foreground = Foreground.new(@configuration, app: @app, again: @launch || @again)
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
      @app ||= Loader.load(@configuration) if @configuration.preload
      Yjit.enable(@configuration) if @app
      make_table
      prepare_forks
      @jobs = Jobs.for(@configuration, @app)
      @desk = Stall::Desk.new(@configuration, addresses, pid: known_as, generation: @parent&.generation.to_i,
                                              named: (@launch || @again)&.folder)
      @terminal = terminal?
      @restart_file = (@launch || @again)&.then { |launch| RestartFile.new(launch.folder) }
      @signals = Signals.new(*SIGNALS)
    end

    # The process id by which the server is known.
    def known_as = @parent&.pid || Process.pid

    def make_table
      count = @configuration.workers
      slots = [[2 * count + 8, Configuration::MAXIMUM_SLOTS].min, count + 2].max
      @workers = Workers.new(count, slots:, boot_timeout: @configuration.boot_timeout,
                                    drain_timeout: @configuration.drain_timeout)
      @handoff = Handoff.new(slots)
      @page = Fairlead.page = SharedPage.new(slots)
      most = @configuration.database_connections
      @budgets = Budgets.new(most, slots, elsewhere: @parent&.kept.to_a) if most
      @recycling = Recycling.for(@configuration, @page)
      @reinforcements = Reinforcements.new(@workers, @page, preload: @configuration.preload)
    end

    def prepare_forks
      # Once, for all workers.
      require "fairlead/server"
      @configuration.run_hook(:before_fork)
      # Compacts, and marks what is there as old: more of it stays shared.
      Process.warmup if Process.respond_to?(:warmup)
    rescue StandardError, ScriptError => error
      raise BootError, "The hook before_fork failed.\n#{diagnose(error)}"
    end

    def supervise
      until @workers.stopping? && @workers.empty? && @jobs&.pid.nil? && @budgets&.over?(monotonic) != false
        @reinforcements.attend(monotonic)
        @workers.due(monotonic).each { |action| perform(action) }
        announce
        wait
        @signals.take.each { |signal| handle(signal) }
        @workers.to_a.each { |worker| listen(worker) }
        listen_to_parent
        @succession&.attend { retire }
        @desk.attend { @desk.status.ask(@workers) }
        restart_by_file if !@workers.stopping? && @restart_file&.touched?(monotonic)
        attend_to_budgets(monotonic) if @budgets
        recycle
        reap
        attend_to_jobs
        give_up if @workers.hopeless?
      end
    end

    # Until something happens: a signal, a message, or a time that was waited for.
    def wait
      now = monotonic
      deadlines = [@workers.next_deadline(now), @budgets&.deadline(now), @recycling&.deadline(now), @jobs&.deadline,
                   *(@restart_file&.deadline unless @workers.stopping?)].compact
      channels = @workers.filter_map { |worker| worker.channel&.io }
      others = [*@desk.ios, *@budgets&.ios, @parent&.io, *@succession&.ios].compact
      IO.select([@signals.io, *channels, *others], nil, nil, deadlines.min && [deadlines.min - now, 0].max)
    end

    def perform(action)
      worker = action.worker
      case action
      when Workers::Fork then fork_worker(worker)
      when Workers::Drain then worker.channel&.tell(Message::Drain.new(handover: action.handover))
      when Workers::Stop then worker.channel&.tell(Message::Stop.new)
      when Workers::Kill then kill(worker)
      end
    end

    def handle(signal)
      @succession&.forward(signal) if %i[HUP TTIN TTOU USR1].include?(signal)
      case signal
      when :TERM, :INT then dismiss
      when :HUP then @terminal && !terminal? ? dismiss : restart
      when :TTIN then resize(:grow, "There is no room for another worker.")
      when :TTOU then resize(:shrink, "The last worker stays.")
      when :USR1 then reopen_logs
      when :USR2 then renew
      end
    end

    # Starts new code. That is the business of the first process.
    def renew
      return @parent.renew if @parent
      return begin_again(file: false) unless @launch

      @succession ||= Succession.new(@launch, @listeners, @notifier, generation: 0, budgets: @budgets) do |failure|
        fail_to_renew(failure)
      end
      @succession.renew
    end

    def restart_by_file
      @launch ? renew : begin_again(file: true)
    end

    # Where no new code can be started beside the old.
    def begin_again(file:)
      return refuse_to_renew unless @again
      return if @workers.stopping?

      announce_start_of(@again, file:)
      @begins_again = true
      @notifier.reloading
      @workers.stop
    end

    # The old one, which is this, goes on serving.
    def fail_to_renew(description)
      @desk.fail(description)
      @budgets&.take_back
    end

    # New code serves.
    def retire
      return if @workers.stopping?

      @workers.each do |worker|
        # All leave together: none shall give the others what it has.
        @page.write(worker.slot, :state, 3)
        @budgets&.servers&.each { |server| ask_to_spare(worker.slot, server, @configuration.database_connections) }
      end
      @listeners.each(&:close)
      @desk.close
      @retired = true
      @workers.stop(handover: true)
    end

    def listen_to_parent
      return unless @parent

      messages, gone = @parent.receive
      messages.each do |message|
        case message
        when Message::Leave then retire
        when Message::Failed then fail_to_renew(message.description)
        when Message::Keeps then @budgets&.note(Budgets::Kept.new(**message.to_h))
        when Message::Wish then @budgets&.lend(message.server, message.count)
        end
      end
      return unless gone

      @parent = nil
      Log.say "The first process has gone: what runs is finished, and the server ends."
      dismiss unless @workers.stopping?
    end

    # What this process was started for goes on in another.
    def keep
      @succession.keeps(@budgets.kept.with(servers: [])) if @budgets
      # Nothing is left to do here: the file of the process id and the sockets are the keeper's.
      pid_file, @pid_file = @pid_file, nil
      Keeper.become(@succession, signals: @signals, tag: @configuration.tag, pidfile: pid_file.path,
                                 log: @configuration.log && File.expand_path(@configuration.log), notify: @notifier.path)
    end

    # Which are shared with the other generations, while new code takes over.
    def attend_to_budgets(now)
      @budgets.attend(now) { |slot, server, count| ask_to_spare(slot, server, count) }
      return unless (others = @parent || @succession)

      @parent&.then { @budgets.wishes(now) { |server, count| @parent.wish(server, count) } }
      @budgets.leave_to_others(now, @workers.sum { |worker| @page.get(worker.slot, :in_flight) }) if @retired
      kept = @budgets.kept
      others.keeps(@kept = kept) if kept != @kept
    end

    # The first time what runs is finished; the second time all ends.
    def dismiss
      @succession&.forward(:TERM)
      return stop_now if @dismissed

      @dismissed = true
      @begins_again = false
      return if @workers.stopping? # it makes way for new code already

      @notifier.stopping
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
      @workers.each { |worker| worker.channel&.tell(Message::Reopen.new) }
    end

    # Says that all serve: once at the start, and after each restart.
    def announce
      return if @workers.stopping? || !@workers.complete?

      unless @announced
        @announced = true
        @banner.serving(addresses)
        @parent ? @parent.serving(@listeners) : @notifier.ready(addresses)
        @desk.serving
        attend_to_jobs
      end
      return unless @restarting && !@workers.restarting?

      @restarting = false
      @notifier.ready(addresses)
      Log.say "The workers have been restarted." unless @restart_failed
      @restart_failed = false
    end

    def fork_worker(worker)
      ActiveRecord::Forks.release
      SequelPools.release
      database = @budgets&.admit(worker.slot)
      ours, theirs = Message::Channel.pair
      @page.clear(worker.slot)
      introduce(worker)
      pid = Process.fork { exit(become(worker, theirs, ours, database)) }
      @page.write(worker.slot, :pid, pid)
      @workers.forked(worker, pid, ours)
    rescue SystemCallError => error
      ours&.close
      worker.failure = "It could not be forked: #{error.message}."
      ended(worker)
    ensure
      theirs&.close
      database&.close
    end

    # In the page, to who looks at it.
    def introduce(worker)
      @page.write(worker.slot, :index, worker.index)
      @page.write(worker.slot, :lane, worker.lane? ? 1 : 0)
      @page.write(worker.slot, :relief, worker.kind == :relief ? 1 : 0)
      @page.write(worker.slot, :restarts, @workers.restarts(worker.index))
      @page.write(worker.slot, :began_us, (monotonic * 1_000_000).to_i)
      @page.write(worker.slot, :state, 1)
    end

    # In the child: leaves behind what is the supervisor's.
    #
    # @return [Integer] the exit status.
    def become(worker, control, other_end, database)
      other_end.close
      leave
      Worker.new(worker, control:, configuration: @configuration, app: @app, listeners: @listeners, page: @page,
                         channels: @handoff.pairs, database:).run
    end

    # In any child.
    def leave
      @budgets&.close
      @workers.each { |other| other.channel&.close }
      @signals.close
      @desk.close
      @jobs&.close
      @parent&.close
      @succession&.close
    end

    # In one that serves nothing.
    def leave_all
      leave
      @listeners.each(&:close)
    end

    def listen(worker)
      return unless worker.channel

      messages, gone = worker.channel.receive
      messages.each do |message|
        case message
        when Message::Ready then @workers.ready(worker, monotonic).each { |action| perform(action) }
        when Message::Failed then worker.failure = message.description
        when Message::Relief then @reinforcements.relieve(monotonic) { |action| perform(action) }
        when Message::Stalled then @desk.add(Stall.new(**message.stall.transform_keys(&:to_sym)))
        when Message::Lasting then @desk.add_lasting(message, worker.pid)
        when Message::Shown then @desk.status.pools.note(worker.pid, message.pools)
        when Message::Stuck then replace(worker, stuck_since(message))
        when Message::Lane then @reinforcements.open_lane(monotonic) { |action| perform(action) }
        end
      end
      return unless gone

      worker.channel.close
      worker.channel = nil
    end

    # Requests of another worker wait for a database connection.
    def ask_to_spare(slot, server, count)
      @workers.find { |worker| worker.slot == slot }&.channel&.tell(Message::Spare.new(server:, count:))
    end

    def replace(worker, why)
      actions = @workers.replace(worker, monotonic) or return
      Log.say "Worker #{worker.index} (process #{worker.pid}) is being replaced: #{why}."
      actions.each { |action| perform(action) }
    end

    def recycle
      worker, why = @recycling&.due(@workers, monotonic)
      replace(worker, why) if worker
    end

    # What a request does that has kept a worker from its loop.
    def stuck_since(message)
      who = message.request.empty? ? "a thread in it" : message.request
      "for #{@configuration.stuck_timeout} s (stuck_timeout) #{who} #{KEPT_AWAY.fetch(message.kind)}"
    end

    # Only its own: other children of this process are not its business.
    def reap
      @workers.select(&:pid).each do |worker|
        _, status = Process.wait2(worker.pid, Process::WNOHANG)
        next unless status

        listen(worker)
        worker.failure ||= how_it_ended(status)
        ended(worker)
      rescue Errno::ECHILD
        worker.failure ||= "It ended, and somebody else in this process took its status."
        ended(worker)
      end
    end

    def how_it_ended(status)
      return "It ended with status #{status.exitstatus}." unless status.signaled?

      "It was ended by SIG#{Signal.signame(status.termsig)}."
    end

    def ended(worker)
      worker.channel&.close
      worker.channel = nil
      @budgets&.leave(worker.slot)
      @page.clear(worker.slot)
      how = @workers.ended(worker, monotonic)
      @handoff.pass_on(worker.slot, @workers.select { |other| other.serving? && !other.lane? }.map(&:slot))
      report(worker, how) unless how == :expected || @workers.stopping?
    end

    def report(worker, how)
      @last_failure = worker.failure
      return Log.say("Worker #{worker.index} (process #{worker.pid}) has ended unasked. #{worker.failure}") if
        how == :death

      # A boot that fails again and again is told once.
      Log.say "Worker #{worker.index} could not start. #{worker.failure}" unless @told == worker.failure
      @told = worker.failure
      return unless @restarting && !@workers.restarting?

      @restart_failed = true
      Log.say "The restart is given up; the workers that serve go on."
    end

    def give_up
      @hopeless = "No worker could start, in #{Workers::PATIENCE} tries. #{@last_failure}"
      @workers.stop_now
    end

    def kill(worker)
      unless worker.booting?
        Log.say "Worker #{worker.index} (process #{worker.pid}) does not end: it is killed."
      end
      Process.kill(:KILL, worker.pid) if worker.pid
    rescue Errno::ESRCH
      nil
    end

    # Of an error in a hook.
    def diagnose(error)
      Diagnosis.new(error, file: @configuration.file || @configuration.rackup, debug: @configuration.debug)
    end

    # Whether this process is bound to a terminal that is still there. When it closes, HUP means: end.
    def terminal?
      return false unless @terminal.nil? ? $stdin.tty? : true

      File.open("/dev/tty", &:close)
      true
    rescue SystemCallError
      false
    end
  end
end
