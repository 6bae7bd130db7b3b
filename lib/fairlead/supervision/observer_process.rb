# frozen_string_literal: true

module Fairlead
  # The process that answers at the address of the option `metrics`, also while every worker holds Ruby's lock. It is forked before the
  # app is loaded, and reads the shared page.
  class ObserverProcess < SideProcess
    # Loaded now: a deployment may remove the files before the process is forked again.
    NEEDED_LATER = [AccessToken, Dashboard, Exposition, Findings, Histogram, History, Humanize, MemoryLimit, Metrics,
                    ObserverConnection, ObserverServer, ProcessMeter, RecentTimes, ServerStatus, StatusReport].freeze
    # Names of this machine for a client on it. Another name may be that of a website whose address has changed to a local one.
    LOCAL = /\A(?:localhost|127\.\d+\.\d+\.\d+|\[::1\])(?::\d+)?\z/i
    # Seconds for which those who have asked are still answered at the end.
    GRACE = 1.0
    private_constant :NEEDED_LATER, :LOCAL, :GRACE

    # @param listeners [Array<Listener>] of the metrics.
    # @param open [Boolean] whether it serves at once; else after {#open}.
    # @return [ObserverProcess, nil] nil if there are no listeners.
    def self.for(configuration, listeners, metrics, open: true, once: false)
      new(configuration, listeners, metrics, open:, once:) if listeners.any?
    end

    def initialize(configuration, listeners, metrics, open: true, once: false)
      super(configuration, once:)
      @listeners = listeners
      @open = open
      @token = AccessToken.new(configuration.metrics_token)
      @metrics = metrics
      @dashboard = Dashboard.new(metrics.page, metrics.status, configuration)
    end

    # In another child of the supervisor.
    def close
      super
      @listeners.each(&:close)
    end

    private

    def name = "The observer"

    def title = "observer"

    # The signals of a terminal or a service manager go to all processes: it answers until the last worker has ended.
    def reset_signals
      super
      %i[TERM INT HUP].each { |signal| Signal.trap(signal, Signals::NOTHING) }
    end

    def call
      await_opening # from then on, and not before, this generation's figures are those of the server
      @dashboard.start
      @server = ObserverServer.new(@listeners.map(&:io), routes, @token, hosts: (method(:local?) if local_only?))
      @server.run
    end

    # @return [Hash{String => #call}] see {ObserverServer}.
    def routes = { **@dashboard.routes, "/metrics" => ->(request) { @metrics.answer(request.headers["accept"]) } }

    def quit
      @server&.finish(within: GRACE)
      Process.exit!(0)
    end

    def local_only? = @configuration.metrics_token.nil? && @listeners.none?(&:unix?)

    def local?(host) = host.nil? || LOCAL.match?(host)
  end
end
