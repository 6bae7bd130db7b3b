# frozen_string_literal: true

module Fairlead
  # The latest report of each worker about its database pools. The shared page does not hold these figures, since updating them there would
  # slow every query. Each `fairlead status` asks the workers for a new report and shows the previous one: a stuck worker holds up nobody.
  class PoolReports
    KEYS = %i[pool role shard size connections in_use idle waiting oldest_wait timeouts].freeze
    # Since a worker's start: how many requests have waited for a connection, for how many seconds in all, and how many in vain.
    TOTALS = %i[waits waited timeouts].freeze
    # Seconds after which a worker that has not answered is asked again: its answer may have been lost.
    PATIENCE = 10
    private_constant :KEYS, :TOTALS, :PATIENCE

    # Reads the pools of this process in a thread of its own: a stuck request may hold a pool's lock.
    #
    # @yieldparam pools [Array<Hash>, nil] see {ActiveRecord.stat}; nil: there is no thread to read them.
    def self.collect
      Thread.new { yield read }.name = "fairlead pools"
    rescue ThreadError # the system allows no more threads
      yield nil
    end

    def self.read
      ActiveRecord.stat.map { |pool| { **pool.slice(*KEYS), **waits(pool[:waits]) } }
    rescue StandardError # an app may have patched its pools
      []
    end

    def self.waits(histogram) = histogram ? { waits: histogram[:count], waited: histogram[:sum] } : {}
    private_class_method :read, :waits

    def initialize
      @reports = {} # process id => [when, pools]
      @requested = {}
      @ended = {} # totals of pools
    end

    # Asks the workers, for the next `fairlead status`, but for those whose last report is outstanding.
    def request(workers)
      workers.each do |worker|
        next if worker.booting? || Clock.now - @requested.fetch(worker.pid, -PATIENCE) < PATIENCE

        @requested[worker.pid] = Clock.now if worker.channel&.post(Messages::Show.new)
      end
    end

    # @param pools [Array<Hash>, nil] nil: the previous report stays.
    def record(pid, pools)
      @requested.delete(pid)
      @reports[pid] = [Clock.now, pools] if pools
    end

    # The totals of each pool since the server's start, with those of workers that have ended, as they last reported them.
    #
    # @return [Array<Hash>] `{ pool:, role:, shard:, waits:, waited:, timeouts: }`
    def totals
      sums = @ended.transform_values(&:dup)
      @reports.each_value { |_, pools| add_totals(sums, pools) }
      sums.map { |pool, totals| { **pool, **totals } }
    end

    # Forgets the reports of all other processes.
    #
    # @param workers [Array<Hash>] see {WorkerStats.of}
    # @return [Array<Hash>] the same, each with its report.
    def add_to(workers)
      pids = workers.map { |worker| worker[:pid] }
      (@reports.keys - pids).each { |pid| add_totals(@ended, @reports.delete(pid).last) }
      @requested.keep_if { |pid, _| pids.include?(pid) }
      workers.map do |worker|
        at, pools = @reports[worker[:pid]]
        { **worker, pools: pools || [], pools_age: at && (Clock.now - at) }
      end
    end

    private

    def add_totals(sums, pools)
      pools.each do |pool|
        pool = pool.transform_keys(&:to_sym)
        totals = sums[pool.slice(:pool, :role, :shard)] ||= TOTALS.to_h { |name| [name, 0] }
        TOTALS.each { |name| totals[name] += pool[name] if pool[name] }
      end
    end
  end
end
