# frozen_string_literal: true

require "etc"

module Fairlead
  # Workers beside the regular ones: relief workers serve while all others are stuck, lane workers run the requests that hold
  # Ruby's lock. This class reads in the shared page whether they are needed; {WorkerTable} bounds their number and ends them.
  class ExtraWorkers
    # Seconds between two log lines about relief.
    LOG_INTERVAL = 10
    private_constant :LOG_INTERVAL

    # @param preload [Boolean] whether the supervisor has loaded the app: else no relief comes in time.
    # @yieldparam action [WorkerTable::Fork] to be done.
    def initialize(workers, page, preload:, &perform)
      @workers = workers
      @page = page
      @preload = preload
      @perform = perform
      @requests = {}
    end

    # Keeps those that are still needed.
    def extend_deadlines(now)
      @workers.relief_needed(now) if @workers.any? { |worker| !worker.lane? && stuck?(worker) }
      @workers.select(&:lane?).each { |worker| @workers.lane_busy(worker, now) if busy?(worker) }
      @page.max_lanes = @workers.max_lanes
    end

    # To be called when a stuck worker has requests that wait, and when a relief worker serves, which may be stuck too by then. If
    # all regular workers are stuck, enough relief is forked to compute as they could. An app that is served by one process may
    # rely on being alone.
    def add_relief(now)
      return unless @preload && @workers.size > 1 &&
                    @workers.select { |worker| worker.regular? && worker.serving? }.all? { |worker| stuck?(worker) }

      relief = @workers.select { |worker| worker.kind == :relief && (worker.serving? || worker.booting?) }
      missing = [@workers.size, Etc.nprocessors].min - relief.count { |worker| !stuck?(worker) }
      forks = missing.times.filter_map { @workers.add_relief(now) }
      forks.each { |action| @perform.call(action) }
      log_relief(now) if forks.any?
    end

    # To be called when requests that hold Ruby's lock wait.
    def add_lane(now)
      action = @workers.add_lane(now) or return
      @perform.call(action)
      return if action.worker.index.positive?

      Log.say "Requests that hold Ruby's lock run in a worker of their own now: #{lane_routes.join(", ")}."
    end

    private

    def stuck?(worker) = @page.read(worker.slot)[:stall] == StallKind::STUCK

    def log_relief(now)
      return if @logged_at && now - @logged_at < LOG_INTERVAL

      @logged_at = now
      Log.say "All workers are stuck in calls that hold Ruby's lock: relief workers serve meanwhile."
    end

    # Whether a lane worker has something to do, or has had since the last call.
    def busy?(worker)
      figures = @page.read(worker.slot)
      before, @requests[worker.slot] = @requests[worker.slot], figures[:requests]
      figures[:requests] != before || (figures[:in_flight] + figures[:queued] + figures[:incoming_requests]).positive?
    end

    def lane_routes
      rows = @page.routes.select { |row| row[:lane] == :process }
      rows.map { |row| row[:action] ? "#{row[:action]} (#{row[:route]})" : row[:route] }
    end
  end
end
