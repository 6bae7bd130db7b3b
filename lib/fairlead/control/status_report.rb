# frozen_string_literal: true

module Fairlead
  # The answer of a server, what the system reports of its processes, and the rates since the report before. `fairlead status
  # --json` prints it: its keys are part of the interface.
  class StatusReport
    # Totals over all workers.
    SUMS = %i[connections in_flight streams queued requests requests_per_second errors refused turned_away
              turned_away_per_second timed_out stalls standbys handed received restarts cpu memory].freeze
    DATABASE = %i[open in_use waiting].freeze
    private_constant :SUMS, :DATABASE

    # @return [Float] seconds of the monotonic clock.
    attr_reader :at

    # @param server [Hash] its answer, see {ControlSocket.servers}
    # @param before [StatusReport, nil] of the same server
    # @param usage [#call] returns the {ProcessUsage} of a process id
    # @param memory_limit [#call] returns the {MemoryLimit} of a process id
    def initialize(server, before: nil, at: Clock.now, usage: ProcessUsage.method(:of), memory_limit: MemoryLimit.method(:of))
      @server = server
      @status = server[:status]
      @at = at
      @memory_limit = memory_limit
      @seconds = before && (at - before.at)
      @usage = @status[:workers].to_h { |worker| [worker[:pid], usage.call(worker[:pid])] }
      @workers = @status[:workers].sort_by { |worker| place(worker) }.map { |worker| { **worker, **measured(worker, before) } }
    end

    # @return [Hash] the workers as {WorkerStats.of} shows them, and with them:
    #
    #   - `version:`, `ruby:`, `yjit:` (nil: only the workers know), `environment:`, `started_at:` (seconds since 1970) and
    #     `generation:` of the code that serves (0: there was no hot restart);
    #   - `pid:` by which the server is known, `folder:`, `tag:`, `addresses:`; `serving:` whether all workers have served; `failure:` why
    #     new code could not be started the last time, or nil;
    #   - `certificates:` as {Certificates#report} has them;
    #   - `problems:` with processes beside the workers, in sentences;
    #   - `limits:` `{ in_flight:, database_connections:, recycle_memory: }`, for each worker, for all, and for each worker (bytes; nil:
    #     it stays);
    #   - `memory_limit:` `{ used:, limit: }` in bytes, as the system limits the server with whatever shares its container (nil: it
    #     does not);
    #   - for each worker `requests_per_second:`, `turned_away_per_second:` and `cpu:` (percent of one core), since the report
    #     before, which is `seconds:` old, or since the worker began; `memory:` (bytes, with its share of shared memory);
    #     `suspended:`; `descriptors:` of files, `{ open:, limit: }`. nil: unknown;
    #   - for each worker `pools:` as {ActiveRecord.stat} shows them, without the holders, `pools_age:` seconds ago (nil: no
    #     report yet); in its `database:`, beside `open:` and `waiting:`, the connections `in_use:`;
    #   - `total:` their sums, and the longest `oldest_wait:`;
    #   - `matters:` the problems, in sentences.
    def to_h
      @to_h ||= begin
        all = { **facts, workers:, total:, routes: @status[:routes] }
        { **all, matters: Findings.new(all).to_a }
      end
    end

    # @return [Hash, nil] the worker's stats.
    def stats_of(pid) = @status[:workers].find { |worker| worker[:pid] == pid }

    def usage_of(pid) = @usage[pid]

    private

    def facts
      {
        **@server.slice(:pid, :folder, :tag, :addresses),
        **@status.slice(:version, :ruby, :yjit, :environment, :started_at),
        generation: @server[:restarts][:generation], serving: @server[:restarts][:serving],
        failure: @server[:restarts][:failure], problems: @server[:problems] || [], certificates: @status[:certificates] || [],
        limits: @status[:limits], memory_limit:, seconds: @seconds
      }
    end

    attr_reader :workers

    # Its workers are in the same group.
    def memory_limit = workers.first && @memory_limit.call(workers.first[:pid])&.to_h

    # A successor comes after its predecessor.
    def place(worker) = [worker[:kind] == "regular" ? 0 : 1, worker[:kind], worker[:index], -worker[:age]]

    # Keeps no reference to the report before, nor to the one before that.
    def measured(worker, before)
      earlier = before&.stats_of(worker[:pid])
      seconds = earlier ? @seconds : worker[:age]
      used = @usage[worker[:pid]]
      used_before = earlier ? before.usage_of(worker[:pid])&.cpu : 0.0
      {
        requests_per_second: rate(since(:requests, worker, earlier), seconds),
        turned_away_per_second: rate(since(:turned_away, worker, earlier), seconds),
        cpu: used && used_before && rate((used.cpu - used_before) * 100, seconds),
        memory: used&.memory, suspended: used&.suspended, descriptors: used&.descriptors, database: database(worker)
      }
    end

    # The budget is up to date, and also counts connections that are being opened.
    def database(worker)
      pools = worker[:pools]
      budget = worker[:database]
      return { **budget, in_use: nil } unless worker[:pools_age]

      open = pools.sum { |pool| pool[:connections] }
      waiting = pools.sum { |pool| pool[:waiting] }
      { open: [open, budget[:open]].max, in_use: pools.sum { |pool| pool[:in_use] }, waiting: [waiting, budget[:waiting]].max }
    end

    def since(key, now, earlier) = now[key] - (earlier ? earlier[key] : 0)

    def rate(count, seconds) = seconds.positive? ? (count / seconds).round(1) : 0.0

    def total
      { **SUMS.to_h { |key| [key, workers.filter_map { |worker| worker[key] }.sum] },
        oldest_wait: workers.map { |worker| worker[:oldest_wait] }.max.to_f,
        database: DATABASE.to_h { |key| [key, workers.filter_map { |worker| worker[:database][key] }.sum] } }
    end
  end
end
