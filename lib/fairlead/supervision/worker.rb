# frozen_string_literal: true

require_relative "../parts"

module Fairlead
  # A worker: the process that serves, from its fork to its end. Its main thread runs the server; a second one
  # listens to the supervisor and to signals.
  class Worker
    # The exit status of a worker that could not start, or whose server failed; and where the user has to change something
    # before any can start (EX_CONFIG of sysexits.h).
    FAILED = 1
    REFUSED = 78
    # Descriptors that macOS takes in any case.
    OPEN_MAX = 10_240
    private_constant :OPEN_MAX

    # @param place [WorkerTable::Worker] its row in the supervisor's table.
    # @param control [Messages::Channel] its end of the control socket.
    # @param app [#call, nil] nil: it is loaded here.
    # @param database [Budgets::Share, nil] where it tells of its database connections, if they are bounded.
    def initialize(place, control:, configuration:, app:, listeners:, page:, channels:, database: nil)
      @place = place
      @control = control
      @configuration = configuration
      @app = app
      @listeners = listeners
      @page = page
      @channels = channels
      @database = database
      @lock = Thread::Mutex.new
    end

    # @return [Integer] the exit status.
    def run
      settle
      Thread.new { listen }.name = "fairlead control"
      start
      @server.run { @control.tell(Messages::Ready.new) }
      @configuration.run_hook(:before_worker_exit, @place.index)
      0
    rescue StandardError, ScriptError, SystemStackError => error
      fail_with(error)
    end

    private

    # Makes the process its own.
    def settle
      name = @place.regular? ? "worker #{@place.index}" : "#{@place.kind} worker #{@place.index}"
      Process.setproctitle("fairlead: #{name} [#{@configuration.tag}]")
      @signals = Signals.new(:TERM, :INT, :USR1)
      %i[HUP USR2].each { |signal| Signal.trap(signal, Signals::NOTHING) }
      %i[CHLD TTIN TTOU].each { |signal| Signal.trap(signal, "DEFAULT") }
      allow_descriptors
    ensure
      Log.redirect(@configuration.log) if @configuration.log
    end

    # Each connection is a descriptor: as many as the system allows. (macOS says that it allows any number, and takes no
    # more than OPEN_MAX.)
    def allow_descriptors
      soft, hard = Process.getrlimit(:NOFILE)
      [hard, OPEN_MAX].each do |most|
        return Process.setrlimit(:NOFILE, most, hard) if most > soft
      rescue Errno::EPERM, Errno::EINVAL
        next
      end
    end

    def start
      @app ||= AppLoader.load(@configuration)
      Yjit.enable(@configuration)
      ActiveRecord::Budget.join(@configuration.database_connections, share: @database, page: @page, slot: @place.slot) if @database
      @configuration.run_hook(:after_fork, @place.index)
      server = Server.new(@app, @configuration, @listeners, page: @page, slot: @place.slot, channels: @channels,
                          told: ->(stall) { @control.tell(Messages::Stalled.new(stall: stall.brief.to_h)) },
                          help: { at: @control.io, relief: Messages.dump(Messages::Relief.new),
                                  lane: Messages.dump(Messages::Lane.new) })
      @lock.synchronize { @server = server }
    end

    # The second thread. It ends with the process.
    def listen
      asked = 0
      deadline = nil
      loop do
        sources = [@signals.io, (@control.io unless deadline)].compact
        readable, = IO.select(sources, nil, nil, deadline && until_then(deadline))
        next abandon if readable.nil?

        @signals.take.each do |signal|
          next Log.reopen if signal == :USR1

          (asked += 1) == 1 ? drain(handover: false) : stop
        end
        deadline = obey if readable.include?(@control.io)
      end
    end

    # @return [Float, nil] when to end at the latest, if the supervisor has gone.
    def obey
      messages, gone = @control.receive
      messages.each do |message|
        case message
        when Messages::Drain then drain(handover: message.handover)
        when Messages::Stop then stop
        when Messages::Reopen then Log.reopen
        when Messages::Show then PoolReports.collect { |pools| @control.tell(Messages::Shown.new(pools:)) }
        when Messages::Ping then @lock.synchronize { @server&.ask { @control.tell(Messages::Pong.new) } }
        when Messages::Spare then ActiveRecord::Budget.numbered(message.server)&.spare(message.count)
        end
      end
      return unless gone

      Log.say "Worker #{@place.index} has lost its supervisor: it finishes what runs and ends."
      drain(handover: false)
      monotonic + @configuration.drain_timeout
    end

    # No supervisor is left to end what does not end by itself.
    def abandon
      stop
      sleep(WorkerTable::GRACE)
      Process.exit!(FAILED)
    end

    # Before it serves there is nothing to finish.
    def drain(handover:)
      @lock.synchronize { @server ? @server.drain(handover:) : Process.exit!(0) }
    end

    def stop
      @lock.synchronize { @server ? @server.stop : Process.exit!(0) }
    end

    # Before it serves, the supervisor tells what was wrong: once, also if each try ends like this.
    def fail_with(error)
      description = error.message if error.is_a?(Error)
      description ||= ErrorReport.new(error, file: hook_file, debug: debug?).to_s
      if @server&.ready?
        Log.say "Worker #{@place.index} failed: #{description}"
      else
        @control.tell(Messages::Failed.new(description))
      end
      error.is_a?(ConfigurationError) ? REFUSED : FAILED
    end

    def debug? = @configuration.debug || @server&.ready?

    # Where a mistake of the user's can be, once the app is loaded: in a hook.
    def hook_file = @configuration.file || @configuration.rackup

    def until_then(deadline) = [deadline - monotonic, 0].max

    def monotonic = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
