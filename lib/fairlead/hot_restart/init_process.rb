# frozen_string_literal: true

module Fairlead
  # The first process of a server with workers; the supervisor is its child. It has the process id by which the server is known
  # and the listening sockets, passes signals on, starts new code, and ends with the status of the server. As process 1 of a
  # container it also reaps processes that have lost their parent.
  class InitProcess
    SIGNALS = %i[TERM INT HUP TTIN TTOU USR1 USR2 CHLD].freeze
    private_constant :SIGNALS

    def initialize(configuration, start_command, &supervise)
      @configuration = configuration
      @restart_file = RestartFile.new(start_command.folder) if start_command
      @pid_file = PidFile.new(configuration.pidfile, at: configuration.source(:pidfile))
      @hot_restart = HotRestart.new(start_command, Listener::InheritedSockets.take, ServiceManager.new) do |link|
        @signals.restore
        supervise.call(link)
      end
    end

    # @return [Integer] the exit status.
    # @raise [ConfigurationError] if the server runs already.
    def run
      @pid_file.write
      Log.open(@configuration)
      @signals = Signals.new(*SIGNALS)
      @hot_restart.start
      Process.setproctitle("fairlead: init [#{@configuration.tag}]")
      wait until @hot_restart.finished?
      @hot_restart.status
    ensure
      @hot_restart.close_listeners
      @pid_file.remove
      @signals&.restore
    end

    # Drains, and ends {#run}. May be called from any thread.
    def stop = @signals&.record(:TERM)

    private

    def wait
      IO.select([@signals.io, *@hot_restart.ios], nil, nil, RestartFile::INTERVAL)
      @signals.take.each { |signal| handle(signal) }
      @hot_restart.restart("#{RestartFile::PATH} has been touched. ") if @restart_file&.touched?
      reap
      @hot_restart.process_messages
    end

    def handle(signal)
      case signal
      when :CHLD then nil
      when :USR2 then @hot_restart.restart
      else
        Log.reopen if signal == :USR1
        @hot_restart.forward(signal)
      end
    end

    # An app that this process has loaded (`rackup`) may wait for children of its own.
    def reap
      (Process.pid == 1 ? [-1] : @hot_restart.pids).each do |child|
        while (pid, status = Process.wait2(child, Process::WNOHANG))
          @hot_restart.ended(pid, status)
        end
      rescue Errno::ECHILD
        next
      end
    end
  end
end
