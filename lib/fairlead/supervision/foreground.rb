# frozen_string_literal: true

require_relative "../parts"

module Fairlead
  # Serves in this very process, without workers: for development, where a debugger's prompt wants the terminal.
  # No process is forked, so the hooks around forks do not run, and no other code serves while new code is loaded.
  #
  # | signal    | |
  # | --------- | --- |
  # | TERM, INT | finishes what runs, and ends; the second one ends at once |
  # | HUP       | the same once: its terminal has closed, or somebody wants a restart, for which nobody is there |
  # | USR1      | reopens the logs |
  # | USR2      | loads the new code in another process; if it can be, finishes what runs, and its command begins anew in its place,
  # with its sockets |
  class Foreground
    include Preparation

    SIGNALS = %i[TERM INT HUP USR1 USR2].freeze
    # They mean a worker more or less where there are workers. In a terminal they are its shell's, which suspends who
    # reads or writes there from the background until it is called back (fg).
    JOB_CONTROL = %i[TTIN TTOU].freeze
    private_constant :SIGNALS, :JOB_CONTROL

    # @param configuration [Configuration]
    # @param app [#call, nil] nil: it is loaded from the configuration's `rackup`.
    # @param again [StartCommand, nil] what takes its place when USR2 or {RestartFile} asks for it.
    def initialize(configuration, app: nil, again: nil)
      @configuration = configuration
      @app = app
      @again = again
    end

    # Serves until TERM, INT or HUP, or {#stop}.
    #
    # @raise [ConfigurationError, BootError]
    def run
      Fairlead.serving!
      Fairlead.configuration = @configuration
      @banner = Banner.new(@configuration)
      @banner.open
      open_premises
      @app ||= AppLoader.load(@configuration)
      start_jobs
      Yjit.enable(@configuration)
      serve
      finish_jobs
      start_again(@again, @successors) if @successors
    ensure
      end_rehearsal
      @signals&.restore
      @jobs&.finish
      close_successors
      close_premises
    end

    # Finishes what runs, and ends {#run}. May be called from any thread.
    def stop = @signals&.note(:TERM)

    private

    def start_jobs
      @jobs = SolidQueueProcess.for(@configuration, @app, hosted: true)
      attend_to_jobs(stopping: false)
    end

    def attend_to_jobs(stopping:)
      @jobs&.attend(monotonic, stopping:) { @listeners.each(&:close) }
    end

    def serve
      Fairlead.page = SharedPage.new(1)
      Fairlead.page.write(0, :pid, Process.pid)
      Fairlead.page.write(0, :began_us, (monotonic * 1_000_000).to_i)
      ActiveRecord::Budget.join(@configuration.database_connections) if @configuration.database_connections
      @control_server = ControlServer.new(@configuration, addresses, named: @again&.folder)
      @server = Server.new(@app, @configuration, @listeners, page: Fairlead.page, slot: 0, told: @control_server.method(:add))
      @restart_file = RestartFile.new(@again.folder) if @again
      @signals = Signals.new(*SIGNALS, *(JOB_CONTROL unless terminal?))
      @watchdog&.loaded
      listener = Thread.new { listen }
      listener.name = "fairlead control"
      @server.run do
        @control_server.serving!
        @banner.serving(addresses)
        @notifier.ready(addresses)
      end
    ensure
      listener&.kill&.join
      @control_server&.close
      Fairlead.page = nil
    end

    # The second thread.
    def listen
      deadline = nil
      loop do
        IO.select([@signals.io, *@control_server.ios, *@rehearsal&.ios], nil, nil, patience(deadline))
        next deadline = too_long if deadline && monotonic >= deadline

        @control_server.answer_clients { PoolReports.collect { |pools| @control_server.state.pool_reports.record(Process.pid, pools) } }
        attend_to_jobs(stopping: !deadline.nil?)
        @watchdog&.attend(monotonic, [:server]) { @server.ask { @watchdog.answered(:server) } }
        rehearse(file: true) if !deadline && @restart_file&.touched?(monotonic)
        attend_to_rehearsal { deadline = begin_again }

        # This thread is killed in the end: what it has taken it still acts upon, and the rest stays.
        Thread.handle_interrupt(Object => :never) { @signals.take.each { |signal| deadline = handle(signal, deadline) } }
      end
    end

    # @return [Float, nil] when it will have taken too long, if this process is ending.
    def handle(signal, deadline)
      case signal
      when :USR1 then Log.reopen
      when :USR2 then return renew(deadline)
      when :HUP, :TERM, :INT
        return drain unless deadline

        end_now unless signal == :HUP
      end
      deadline
    end

    # The end of a child is no event here: the app may have children too.
    def patience(deadline)
      [*(1.0 if @jobs || @restart_file), *[deadline, @rehearsal&.deadline, *@watchdog&.deadline].compact.map { |time| [time - monotonic, 0].max }].min
    end

    # Whoever is ending ends.
    def renew(deadline)
      return deadline if deadline

      @again ? rehearse(file: false) : refuse_to_renew
      nil
    end

    # @return [Float] when it will have taken too long.
    def begin_again
      announce_start_of(@again)
      # Those of the server are closed as it ends.
      @successors = @listeners.map(&:successor)
      drain
    end

    # Whoever is told to end while it is ending, or would begin anew, ends.
    def end_now
      close_successors
      @jobs&.hurry(monotonic)
      @server.stop
    end

    def finish_jobs
      @jobs&.finish { end_now if @signals.take.intersect?(%i[TERM INT]) }
    end

    def close_successors
      @successors&.each(&:close)
      @successors = nil
    end

    # @return [Float] when it will have taken too long.
    def drain
      end_rehearsal
      @successors ? @notifier.reloading : @notifier.stopping
      @server.drain
      monotonic + @configuration.drain_timeout
    end

    def too_long
      @server.stop
      monotonic + @configuration.drain_timeout
    end
  end
end
