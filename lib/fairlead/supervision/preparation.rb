# frozen_string_literal: true

module Fairlead
  # What {Supervisor} and {Foreground} do before they serve. The includer has @configuration, and may have @parent.
  module Preparation
    # Loaded now: when they are needed, there may be no descriptor left to load them with.
    NEEDED_LATER = [
      ErrorReport, WorkerStats, Messages, Rehearsal, SequelPools, Stall::Advice, Stall::Culprit, Stall::Aggregator, Stall::Snapshot,
      ControlServer, Crash, PoolReports, RequestReports
    ].freeze
    private_constant :NEEDED_LATER

    private

    # Opens the log and the addresses. This comes before the app is loaded, so that a taken port is reported at once.
    #
    # @raise [ConfigurationError]
    def open_log_and_addresses
      refuse_moving_threads
      Fairlead.configuration = @configuration
      @banner = Banner.new(@configuration, pid: @parent&.pid || Process.pid)
      @banner.open
      Log.open(@configuration)
      @service_manager = ServiceManager.new(parent: @parent)
      @watchdog = Watchdog.for(@service_manager, @configuration.boot_timeout)
      @control_address = ControlSocket.new_address
      open_listeners
      @certificates = Certificates.load(@configuration, @listeners, memory: @parent&.tickets)
    end

    def addresses = @listeners.map(&:uri)

    # The core tells by a thread of the system how a Ruby thread stalls.
    def refuse_moving_threads
      value = ENV["RUBY_MN_THREADS"]
      return unless value.to_i.positive?

      raise ConfigurationError, "RUBY_MN_THREADS=#{value} has Ruby move its threads between those of the system, and " \
        "Fairlead could not tell which of them stalls. Unset RUBY_MN_THREADS."
    end

    # Sockets of a service manager replace the default address, and are not bound again if the configuration names them too.
    # Sockets of an older generation that the configuration no longer names are closed.
    def open_listeners
      inherited = @parent&.listeners || Listener::InheritedSockets.take
      inherited = open_metrics_listeners(inherited)
      managed = inherited.any? { |listener| listener.asked.nil? }
      wanted = managed && @configuration.origin(:bind) == :default ? [] : @configuration.bind
      kept, left = inherited.partition { |listener| listener.asked.nil? || wanted.any? { |uri| listener.asked?(uri) } }
      left.each(&:close)
      kept.each do |listener|
        named = wanted.find { |uri| uri == listener.asked } || wanted.find { |uri| listener.is?(uri) }
        listener.adopt(named) if named
      end
      wanted = wanted.reject { |uri| kept.any? { |listener| listener.is?(uri) } }
      @listeners = kept + Listener.open_all(wanted, backlog: @configuration.backlog)
    end

    # @return [Array<Listener>] those that are not for metrics.
    def open_metrics_listeners(inherited)
      AccessToken.check(@configuration)
      at = @configuration.metrics_address
      @metrics_listeners, others = inherited.partition { |listener| at && listener.is?(at) }
      @metrics_listeners = Listener.open_all([at]) if at && @metrics_listeners.empty?
      others
    rescue ConfigurationError => error
      raise ConfigurationError, "#{@configuration.source(:metrics)}: #{error.message.gsub("--port", "--metrics")}"
    end

    # @return [Boolean] whether this process has a terminal that is still there.
    def terminal?
      File.open("/dev/tty", &:close)
      true
    rescue Errno::EMFILE, Errno::ENFILE
      true
    rescue SystemCallError
      false
    end
  end
end
