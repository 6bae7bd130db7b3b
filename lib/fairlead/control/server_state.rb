# frozen_string_literal: true

require_relative "../parts"

module Fairlead
  # What a server says of itself to `fairlead status`. Of the first process, or the supervisor.
  class Status
    autoload :Columns, "fairlead/cli/status_columns"
    autoload :Command, "fairlead/cli/status"
    autoload :Consumption, "fairlead/control/consumption"
    autoload :Matters, "fairlead/cli/findings"
    autoload :Pools, "fairlead/control/pools"
    autoload :Report, "fairlead/cli/status_report"
    autoload :Table, "fairlead/cli/status_table"
    autoload :Words, "fairlead/cli/humanize"

    LIMITS = %i[in_flight database_connections].freeze
    private_constant :LIMITS

    # @param configuration [Configuration]
    def initialize(configuration)
      @configuration = configuration
      @started_at = Time.now.to_f
      @pools = Pools.new
    end

    # @return [Pools] of the workers.
    attr_reader :pools

    # Somebody has looked, and may look again.
    #
    # @param workers [Enumerable<WorkerTable::Worker>]
    def ask(workers)
      workers.each { |worker| pools.ask(worker.pid) { worker.channel&.tell(Messages::Show.new) } if worker.serving? || worker.leaving? }
    end

    # @return [Hash]
    def to_h
      {
        version: VERSION, ruby: RUBY_VERSION, yjit: yjit?, environment: @configuration.environment,
        started_at: @started_at, limits: LIMITS.to_h { |name| [name, @configuration.public_send(name)] }, **figures
      }
    end

    private

    def figures
      stats = Fairlead.stats
      { **stats, workers: pools.beside(stats[:workers]) }
    end

    # Where the app is loaded in each worker, nobody knows here.
    def yjit?
      return unless @configuration.preload || @configuration.workers.zero?

      defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled? ? true : false
    end
  end
end
