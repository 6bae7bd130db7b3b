# frozen_string_literal: true

require_relative "../parts"

module Fairlead
  # What has to be there before anything is served, with a supervisor or without one.
  #
  # The includer has @configuration, once it serves @control_server and @signals, and may have @parent.
  module Preparation
    # Loaded now: when they are needed, there may be no descriptor left to load them with.
    NEEDED_LATER = [
      ErrorReport, WorkerStats, Messages, Rehearsal, SequelPools, Stall::Advice, Stall::Culprit, Stall::Aggregator, Stall::Snapshot,
      ControlServer, PoolReports
    ].freeze
    private_constant :NEEDED_LATER

    # Opens the log, and everything that others could hold: the process id file and the addresses. Done before
    # the app is loaded, so that a taken port is told at once.
    #
    # @raise [ConfigurationError]
    def open_premises
      refuse_moving_threads
      Log.open(@configuration)
      @notifier = ServiceManager.new(parent: @parent)
      @watchdog = Watchdog.for(@notifier, @configuration.boot_timeout)
      # The first process has one already.
      @pid_file = PidFile.new(@parent ? nil : @configuration.pidfile, at: @configuration.source(:pidfile))
      @pid_file.write
      @listeners = open_listeners
    end

    def close_premises
      @listeners&.each(&:close)
      @pid_file&.remove
    end

    # @param launch [StartCommand] what takes this process' place once it has ended.
    def announce_start_of(launch)
      why = "#{RestartFile::PATH} has been touched: " if @asked_by_file
      Log.say "#{why}#{why ? "what" : "What"} runs is finished, and `#{launch}` begins anew."
    end

    def refuse_to_renew
      Log.say(refusal = "Hot restart is unavailable: the start command is unknown.")
      @control_server.restart_failed(refusal)
    end

    # Has the command show that it can take this process' place.
    #
    # @param file [Boolean] whether it was asked for by {RestartFile}, and not by a signal.
    def rehearse(file:)
      return if @rehearsal

      @asked_by_file = file
      @rehearsal = Rehearsal.new(@again, within: @configuration.boot_timeout)
    rescue SystemCallError => error
      fail_to_renew("The command cannot be run: #{error.message}.")
    end

    # @yield once it has shown that.
    def attend_to_rehearsal
      result = @rehearsal&.attend or return
      @rehearsal = nil
      result == :passed ? yield : fail_to_renew(result)
    end

    def end_rehearsal
      @rehearsal&.stop
      @rehearsal = nil
    end

    # The old code goes on serving.
    def fail_to_renew(description)
      Log.say "The new code could not be started, and the old goes on serving.\n#{description}"
      @control_server.restart_failed(description)
    end

    # Has a command take this process' place, unless the process has been told to end meanwhile.
    #
    # @param launch [StartCommand]
    # @raise [BootError] if it cannot be run.
    def start_again(launch, listeners = @listeners)
      %i[TERM INT].each { |signal| Signal.trap(signal, "DEFAULT") } # those that come from now on end it
      @notifier.well if @notifier.watchdog
      launch.replace(listeners, @notifier.variables) unless @signals.take.intersect?(%i[TERM INT])
    rescue SystemCallError => error
      raise BootError, "The server has ended, and could not be started again by `#{launch}`: #{error.message}."
    end

    # @return [Array<String>]
    def addresses = @listeners.map(&:uri)

    private

    # How a thread stalls is told from the system's own thread.
    def refuse_moving_threads
      value = ENV["RUBY_MN_THREADS"]
      return unless value.to_i.positive?

      raise ConfigurationError, "RUBY_MN_THREADS=#{value} has Ruby move its threads between those of the system, and " \
        "Fairlead could not tell which of them stalls. Unset RUBY_MN_THREADS."
    end

    # Sockets of a service manager replace the default address, and are not bound again where they were asked
    # for too. What older code has served, and nobody asks for any more, is closed.
    def open_listeners
      inherited = @parent&.listeners || Listener.inherited
      managed = inherited.any? { |listener| listener.asked.nil? }
      wanted = managed && @configuration.origin(:bind) == :default ? [] : @configuration.bind
      kept, left = inherited.partition { |listener| listener.asked.nil? || wanted.include?(listener.asked) }
      left.each(&:close)
      wanted = wanted.reject { |uri| kept.any? { |listener| listener.is?(uri) } }
      kept + Listener.open_all(wanted, backlog: @configuration.backlog)
    end

    # Whether this process is bound to a terminal that is still there.
    def terminal?
      File.open("/dev/tty", &:close)
      true
    rescue Errno::EMFILE, Errno::ENFILE
      true
    rescue SystemCallError
      false
    end

    def monotonic = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
