# frozen_string_literal: true

module Fairlead
  # The server's metrics. Most are read from the shared page, and counters go on when workers end; {ServerStatus} has the rest. Labels are
  # bounded: nothing that a client sends becomes one, but for at most a hundred routes.
  class Metrics
    # Writes what only a worker knows of itself into its slot. It is called every few seconds while somebody reads metrics.
    def self.publish_process(page, slot)
      page.write(slot, :gc_runs, GC.count)
      page.write(slot, :gc_us, GC.total_time / 1000)
    end

    # To be called in the supervisor, when the server starts.
    #
    # @param page [SharedPage]
    # @param status [ServerStatus]
    def initialize(page, status)
      @page = page
      @status = status
      @started_at = Time.now.to_f
      @supervisor = Process.pid
    end

    attr_reader :page, :status

    # @param accept [String, nil] the field Accept of a request.
    # @return [Array(Integer, Hash, String)] status, headers and body of a response.
    def answer(accept)
      exposition = Exposition.for(accept)
      dup.write(exposition) # several threads may answer at once
      [200, { "content-type" => exposition.content_type, "vary" => "accept", "cache-control" => "no-store" }, exposition.to_s]
    end

    # @param exposition [Exposition]
    def write(exposition)
      @out = exposition
      @workers = WorkerStats.of(@page)[:workers]
      @counters = @page.counters
      @latest = @status.latest
      server
      workers
      requests
      routes
      stalls
      database
      certificates
      processes
    end

    private

    def server
      @out.gauge("fairlead_build_info", "Versions of Fairlead and Ruby.", { { version: VERSION, ruby: RUBY_VERSION } => 1 })
      @out.gauge("fairlead_start_time_seconds", "When the server was started, in seconds since 1970.", { nil => @started_at.round(3) })
    end

    def workers
      counts = %i[regular relief lane].product(WorkerState::NAMES.compact - [:empty]).to_h { |kind, state| [{ kind:, state: }, 0] }
      @workers.each { |worker| counts[worker.slice(:kind, :state)] = counts.fetch(worker.slice(:kind, :state), 0) + 1 }
      @out.gauge("fairlead_workers", "Worker processes by kind and state.", counts)
      counter("fairlead_worker_failures_total", :failures, "Workers that ended unexpectedly.")
      by_worker("fairlead_worker_connections", :connections, "Open connections of clients.")
      by_worker("fairlead_worker_in_flight_requests", :in_flight, "Requests that run, without streams.")
      by_worker("fairlead_worker_streams", :streams, "Long-lived responses that are open.")
      by_worker("fairlead_worker_queued_requests", :queued, "Requests that wait for their turn.")
      by_worker("fairlead_worker_oldest_queued_seconds", :oldest_wait, "How long the first request in the queue has waited.", &:max)
    end

    # A worker and its successor have the same number for a while.
    def by_worker(name, figure, help, &combine)
      combine ||= :sum.to_proc
      groups = @workers.group_by { |worker| { kind: worker[:kind], worker: worker[:index] } }
      @out.gauge(name, help, groups.transform_values { |same| combine.call(same.map { |worker| worker[figure] }) })
    end

    def counter(name, field, help) = @out.counter(name, help, { nil => @counters.fetch(field) })

    def requests
      times = @page.times
      counter("fairlead_requests_total", :requests, "Requests that were answered.")
      @out.counter("fairlead_responses_total", "Responses by class of their status code.",
                   times[:codes].transform_keys { |code| { code: } })
      counter("fairlead_request_errors_total", :errors, "Requests that ended with an exception of the app.")
      counter("fairlead_request_timeouts_total", :timed_out, "Requests that exceeded request_timeout.")
      overload = @counters[:turned_away]
      @out.counter("fairlead_rejected_requests_total", "Requests that were answered without the app, by reason.",
                   { { reason: "overload" } => overload, { reason: "request" } => @counters[:refused] - overload })
      @out.histogram("fairlead_request_queue_seconds", "How long requests waited until the app was called.", SharedPage::BOUNDS,
                     { nil => times[:queue] })
      @out.histogram("fairlead_request_service_seconds", "How long requests ran, without streams.", SharedPage::BOUNDS,
                     { nil => times[:service] })
      @out.counter("fairlead_request_time_seconds_total", "What requests spent their time on.",
                   times[:kinds].transform_keys { |kind| { kind: } })
    end

    def routes
      by_route("fairlead_route_requests_total", "counter", :add_route_requests, "Requests by route.")
      by_route("fairlead_route_errors_total", "counter", :add_route_errors, "Requests by route that were answered with 5xx.")
      by_route("fairlead_route_service_seconds", "histogram", :add_route_service, "How long requests of a route ran.")
      by_route("fairlead_route_time_seconds_total", "counter", :add_route_kinds, "What requests of a route spent their time on.")
    end

    # There may be thousands of lines: the page writes them itself.
    def by_route(name, type, lines, help) = @out.family(name, type, help) { |text| @page.public_send(lines, text, name) }

    def stalls
      @out.counter("fairlead_stalls_total", "Times that a request kept others from running for longer than stall_report, by kind.",
                   stall_kinds.to_h { |kind| [{ kind: }, @counters.fetch(:"stalls_#{kind}")] })
      stalled = @workers.filter_map { |worker| worker[:stalled]&.fetch(:kind) }.tally
      @out.gauge("fairlead_stalled_workers", "Workers of which a request keeps others from running now, by kind.",
                 stall_kinds.to_h { |kind| [{ kind: }, stalled.fetch(kind, 0)] })
      counter("fairlead_standbys_total", :standbys, "How often a standby reactor took the lead.")
      counter("fairlead_handed_over_requests_total", :handed, "Requests that a worker handed to another one.")
      counter("fairlead_lane_requests_total", :lane_requests, "Requests that ran in a lane.")
    end

    def stall_kinds = StallKind::NAMES.compact

    def database
      databases = @workers.map { |worker| worker[:database] }
      @out.gauge("fairlead_database_budget_connections", "Connections that workers have of the limit database_connections.",
                 { nil => databases.sum { |one| one[:open] } })
      @out.gauge("fairlead_database_budget_waiting_requests", "Requests that wait since the limit database_connections is reached.",
                 { nil => databases.sum { |one| one[:waiting] } })
      pools
      pool_totals
    end

    def pools
      pools = reported_workers.flat_map { |worker| worker[:pools] || [] }.group_by { |pool| labels_of(pool) }
      states = pools.flat_map do |labels, same|
        %i[in_use idle].map { |state| [{ **labels, state: }, same.sum { |pool| pool[state].to_i }] }
      end
      @out.gauge("fairlead_database_pool_connections", "Open database connections by pool and state.", states)
      @out.gauge("fairlead_database_pool_size", "How many connections the pools of all workers may open.",
                 pools.transform_values { |same| same.sum { |pool| pool[:size].to_i } })
      @out.gauge("fairlead_database_pool_waiting_requests", "Requests that wait for a connection, by pool.",
                 pools.transform_values { |same| same.sum { |pool| pool[:waiting].to_i } })
      @out.gauge("fairlead_database_pool_oldest_wait_seconds", "How long the first of them has waited.",
                 pools.transform_values { |same| same.map { |pool| pool[:oldest_wait].to_f }.max })
    end

    def pool_totals
      totals = @latest.fetch(:pool_totals, []).to_h { |pool| [labels_of(pool), pool] }
      { waits: ["fairlead_database_pool_waits_total", "Requests that have waited for a connection and got one."],
        waited: ["fairlead_database_pool_wait_seconds_total", "How long they have waited in all."],
        timeouts: ["fairlead_database_pool_timeouts_total", "Requests that got no connection in time."] }.each do |total, (name, help)|
        @out.counter(name, help, totals.transform_values { |pool| pool[total] })
      end
    end

    def certificates
      known = @latest.dig(:status, :certificates) || []
      @out.gauge("fairlead_certificate_expiry_timestamp_seconds", "When certificates for https expire, in seconds since 1970, by name.",
                 known.group_by { |one| { name: one[:name] } }.transform_values { |same| same.map { |one| one[:expires_at] }.min })
      @out.gauge("fairlead_certificate_problem", "Whether new files of a certificate cannot be used (1), so that the one before stays.",
                 (known.any? ? { nil => known.any? { |one| one[:problem] } ? 1 : 0 } : {}))
    end

    def labels_of(pool) = pool.slice(:pool, :role, :shard)

    def reported_workers = @latest.dig(:status, :workers) || []

    def processes
      counter("fairlead_gc_runs_total", :gc_runs, "Runs of the garbage collector in workers.")
      @out.counter("fairlead_gc_seconds_total", "Time of the garbage collector in workers.", { nil => @counters.fetch(:gc_us) / 1e6 })
      memory = process_ids.transform_values { |pids| pids.filter_map { |pid| ProcessUsage.resident(pid) } }
      @out.gauge("fairlead_process_resident_memory_bytes", "Resident memory by process. Shared pages count for each.",
                 memory.reject { |_, found| found.empty? }.transform_values(&:sum))
      descriptors
      memory_limit
    end

    # Of a worker and its successor, those of the one that has less left.
    def descriptors
      found = worker_ids.transform_values { |pids| pids.filter_map { |pid| ProcessUsage.descriptors(pid) } }
      tightest = found.reject { |_, all| all.empty? }.transform_values { |all| all.max_by { |one| one[:open].fdiv(one[:limit]) } }
      @out.gauge("fairlead_process_open_fds", "Open file descriptors by worker process.", tightest.transform_values { |one| one[:open] })
      @out.gauge("fairlead_process_max_fds", "How many a process may have open.", tightest.transform_values { |one| one[:limit] })
    end

    def memory_limit
      known = @latest[:memory_limit]
      @out.gauge("fairlead_memory_used_bytes", "Memory of the group of processes (cgroup) that the system limits, without cached files.",
                 known ? { nil => known[:used] } : {})
      @out.gauge("fairlead_memory_limit_bytes", "That limit; beyond it, the system ends processes.", known ? { nil => known[:limit] } : {})
    end

    # @return [Hash{Hash => Array<Integer>}] labels => process ids.
    def process_ids
      beside = { supervisor: @supervisor, **@latest.fetch(:processes, {}) }
      own = beside.to_h { |name, pid| [{ process: name }, [pid].compact] }
      { **own, **worker_ids }
    end

    def worker_ids
      @workers.group_by { |worker| { process: title(worker) } }.transform_values { |same| same.map { |worker| worker[:pid] } }
    end

    def title(worker) = "#{"#{worker[:kind]} " unless worker[:kind] == :regular}worker #{worker[:index]}"
  end
end
