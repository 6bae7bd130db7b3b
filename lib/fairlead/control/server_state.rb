# frozen_string_literal: true

require_relative "../parts"

module Fairlead
  # What a server reports to `fairlead status`.
  class ServerState
    LIMITS = %i[in_flight database_connections].freeze
    private_constant :LIMITS

    # @param configuration [Configuration]
    def initialize(configuration)
      @configuration = configuration
      @started_at = Time.now.to_f
      @pool_reports = PoolReports.new
    end

    # @return [PoolReports] of the workers.
    attr_reader :pool_reports

    # Asks the workers for their pools, for the next `fairlead status`.
    #
    # @param workers [Enumerable<WorkerTable::Worker>]
    def request_pool_reports(workers)
      workers.each do |worker|
        pool_reports.request(worker.pid) { worker.channel&.post(Messages::Show.new) } if worker.serving? || worker.leaving?
      end
    end

    # @return [Hash]
    def to_h
      stats = Fairlead.stats
      {
        version: VERSION, ruby: RUBY_VERSION, yjit: yjit?, environment: @configuration.environment,
        started_at: @started_at, limits: LIMITS.to_h { |name| [name, @configuration.public_send(name)] },
        **stats, workers: pool_reports.add_to(stats[:workers])
      }
    end

    private

    # @return [Boolean, nil] nil: only the workers know, since each one loads the app.
    def yjit?
      return unless @configuration.preload || @configuration.workers.zero?

      defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled? ? true : false
    end
  end
end
