# frozen_string_literal: true

require_relative "parts"

module Fairlead
  # What has to be there before anything is served, with a supervisor or without one.
  #
  # The includer has @configuration.
  module Startup
    # Opens the log, and everything that others could hold: the process id file and the addresses. Done before
    # the app is loaded, so that a taken port is told at once.
    #
    # @raise [ConfigurationError]
    def open_premises
      refuse_moving_threads
      Log.open(@configuration)
      @notifier = Notifier.new
      @pid_file = PidFile.new(@configuration.pidfile, at: @configuration.source(:pidfile))
      @pid_file.write
      @listeners = open_listeners
    end

    def close_premises
      @listeners&.each(&:close)
      @pid_file&.remove
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
    # for too.
    def open_listeners
      inherited = Listener.inherited
      wanted = inherited.any? && @configuration.origin(:bind) == :default ? [] : @configuration.bind
      wanted -= inherited.map(&:uri)
      inherited + Listener.open_all(wanted, backlog: @configuration.backlog)
    end

    def monotonic = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
