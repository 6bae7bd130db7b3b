# frozen_string_literal: true

require_relative "../parts"

module Fairlead
  # The first process of a server that has workers. It has no app: its child is the supervisor. It has the process id by
  # which the server is known, and the listening sockets; it passes signals on, starts new code, reaps what nobody else
  # does (as process 1 of a container), and ends with the status of the server.
  class InitProcess
    SIGNALS = %i[TERM INT HUP TTIN TTOU USR1 USR2 CHLD].freeze
    private_constant :SIGNALS

    # @param launch [StartCommand]
    # @param configuration [Configuration]
    # @yieldparam parent [ParentLink] in the child, which becomes the first supervisor
    # @yieldreturn [Integer] its exit status
    def initialize(launch, configuration, &supervise)
      @configuration = configuration
      @pid_file = PidFile.new(configuration.pidfile, at: configuration.source(:pidfile))
      @succession = HotRestart.new(launch, Listener.inherited, ServiceManager.new) do |parent|
        @signals.restore
        supervise.call(parent)
      end
    end

    # Until the last supervisor has ended.
    #
    # @return [Integer] the exit status.
    # @raise [ConfigurationError] if the server runs already.
    def run
      @pid_file.write
      @signals = Signals.new(*SIGNALS)
      @succession.renew
      Process.setproctitle("fairlead: init [#{@configuration.tag}]")
      Log.io = File.open(@configuration.log, "a").tap { |file| file.sync = true } if @configuration.log
      attend until @succession.masters.empty?
      @succession.status
    ensure
      @succession.listeners.each(&:close)
      @pid_file.remove
    end

    private

    def attend
      IO.select([@signals.io, *@succession.ios])
      @signals.take.each { |signal| handle(signal) }
      @succession.attend
      reap
    end

    def handle(signal)
      case signal
      when :CHLD then nil
      when :USR2 then @succession.renew
      else
        Log.reopen if signal == :USR1
        @succession.forward(signal)
      end
    end

    # Process 1 also gets what has lost its own parent.
    def reap
      while (pid, status = Process.wait2(-1, Process::WNOHANG))
        @succession.ended(pid, status)
      end
    rescue Errno::ECHILD
      nil
    end
  end
end
