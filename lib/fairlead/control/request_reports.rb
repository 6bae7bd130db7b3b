# frozen_string_literal: true

module Fairlead
  # The latest report of each worker about its requests. Like {PoolReports}, each answer shows the report before the one that it asks for:
  # a worker that does not answer holds up nobody.
  class RequestReports
    # Requests in flight in an answer.
    MOST = 200
    private_constant :MOST

    # @param status [Hash, nil] a server's answer
    # @return [Array<Hash>] its requests in flight, the oldest first. Those of a stuck worker, which no longer reports, go on ageing.
    def self.now(status)
      rows = status&.dig(:requests, :in_flight) || []
      rows.map { |row| { **row, age: row[:age] + row[:seen].to_f } }.sort_by { |row| -row[:age] }
    end

    def initialize = @reports = {} # process id => [when, report]

    # @param report [Hash, nil] see {Server#requests}; nil: the previous one stays.
    def record(pid, report)
      @reports[pid] = [Clock.now, report.transform_keys(&:to_sym)] if report
    end

    # Forgets the reports of all other processes.
    #
    # @param workers [Array<Hash>] see {WorkerStats.of}
    # @return [Hash] `{ in_flight:, slow: }` of all workers, the oldest and the slowest first: see {RunningRequests#list} and
    #   {SlowRequests#list}. Each request also has the index of its `worker:`, its `pid:`, and how many seconds ago it was reported
    #   (`seen:`).
    def of(workers)
      @reports.keep_if { |pid, _| workers.any? { |worker| worker[:pid] == pid } }
      { in_flight: rows(workers, :in_flight).sort_by { |row| -row[:age] }.first(MOST),
        slow: rows(workers, :slow).sort_by { |row| -row[:duration] }.first(MOST) }
    end

    private

    def rows(workers, list)
      workers.flat_map do |worker|
        at, report = @reports[worker[:pid]]
        report.to_h.fetch(list, []).map do |row|
          { **row.transform_keys(&:to_sym), worker: worker[:index], pid: worker[:pid], seen: Clock.now - at }
        end
      end
    end
  end
end
