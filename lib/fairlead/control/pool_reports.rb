# frozen_string_literal: true

module Fairlead
  # The latest report of each worker about its database pools. The shared page does not hold these figures, since updating them there would
  # slow every query. Each `fairlead status` asks the workers for a new report and shows the previous one: a stuck worker holds up nobody.
  class PoolReports
    KEYS = %i[pool role shard size connections in_use idle waiting oldest_wait timeouts].freeze
    private_constant :KEYS

    # Reads the pools of this process in a thread of its own: a stuck request may hold a pool's lock.
    #
    # @yieldparam pools [Array<Hash>, nil] see {ActiveRecord.stat}; nil: there is no thread to read them.
    def self.collect
      Thread.new { yield read }.name = "fairlead pools"
    rescue ThreadError # the system allows no more threads
      yield nil
    end

    def self.read
      ActiveRecord.stat.map { |pool| pool.slice(*KEYS) }
    rescue StandardError # an app may have patched its pools
      []
    end
    private_class_method :read

    def initialize
      @reports = {} # process id => [when, pools]
      @requested = {}
    end

    # Asks the workers, for the next `fairlead status`, but for those whose last report is outstanding.
    def request(workers)
      workers.each do |worker|
        next if worker.booting? || @requested[worker.pid]

        @requested[worker.pid] = true if worker.channel&.post(Messages::Show.new)
      end
    end

    # @param pools [Array<Hash>, nil] nil: the previous report stays.
    def record(pid, pools)
      @requested.delete(pid)
      @reports[pid] = [Clock.now, pools] if pools
    end

    # Forgets the reports of all other processes.
    #
    # @param workers [Array<Hash>] see {WorkerStats.of}
    # @return [Array<Hash>] the same, each with its report.
    def add_to(workers)
      [@reports, @requested].each { |table| table.keep_if { |pid, _| workers.any? { |worker| worker[:pid] == pid } } }
      workers.map do |worker|
        at, pools = @reports[worker[:pid]]
        { **worker, pools: pools || [], pools_age: at && (Clock.now - at) }
      end
    end
  end
end
