# frozen_string_literal: true

require "etc"

require_relative "../parts"

module Fairlead
  # The workers beside the regular ones: relief workers serve while all others are stuck, lane workers run the requests
  # that hold Ruby's lock. Here it is seen from the shared page whether they are needed, or needed for longer; how many
  # there may be, and when they go, is decided by {WorkerTable}, and who forks them is the supervisor.
  class ExtraWorkers
    # What the shared page says of a worker whose reactor sleeps with the GVL.
    STUCK = 2
    # Seconds between two lines about relief.
    RELIEF_TOLD = 10
    private_constant :STUCK, :RELIEF_TOLD

    # @param workers [WorkerTable]
    # @param page [SharedPage]
    # @param preload [Boolean] whether the app is loaded here: else there is nothing to fork in time.
    def initialize(workers, page, preload:)
      @workers = workers
      @page = page
      @preload = preload
      @requests = {}
      @told = nil
    end

    # Those that are still needed stay.
    def attend(now)
      @workers.stuck(now) if @workers.any? { |worker| !worker.lane? && stuck?(worker) }
      @workers.select(&:lane?).each { |worker| @workers.lane_used(worker, now) if busy?(worker) }
      @page.most_lanes = @workers.most_lanes
    end

    # A worker is stuck, and requests wait there, or relief has come and may be stuck too by now. More comes if all regular
    # ones are, until it can compute as they could. An app that is served by one process may count on being alone.
    #
    # @yieldparam action [WorkerTable::Fork] to be done.
    def relieve(now)
      return unless @preload && @workers.size > 1 &&
                    @workers.select { |worker| worker.regular? && worker.serving? }.all? { |worker| stuck?(worker) }

      relief = @workers.select { |worker| worker.kind == :relief && (worker.serving? || worker.booting?) }
      missing = [@workers.size, Etc.nprocessors].min - relief.count { |worker| !stuck?(worker) }
      forked = missing.times.count { @workers.relieve(now)&.tap { |action| yield action } }
      tell_of_relief(now) if forked.positive?
    end

    # Requests wait that hold Ruby's lock: they shall hold up no others.
    #
    # @yieldparam action [WorkerTable::Fork] to be done.
    def open_lane(now)
      action = @workers.add_lane(now) or return
      yield action
      return if action.worker.index.positive?

      Log.say "Requests that hold Ruby's lock run in a worker of their own now: #{lane_routes.join(", ")}."
    end

    private

    def stuck?(worker) = @page.read(worker.slot)[:stall] == STUCK

    def tell_of_relief(now)
      return if @told && now - @told < RELIEF_TOLD

      @told = now
      Log.say "All workers are stuck in calls that hold Ruby's lock: relief workers serve meanwhile."
    end

    # Whether a lane worker has something to do, or has had since it was last asked.
    def busy?(worker)
      figures = @page.read(worker.slot)
      before, @requests[worker.slot] = @requests[worker.slot], figures[:requests]
      figures[:requests] != before || (figures[:in_flight] + figures[:queued] + figures[:coming]).positive?
    end

    def lane_routes
      rows = @page.routes.select { |row| row[:lane] == :process }
      rows.map { |row| row[:action] ? "#{row[:action]} (#{row[:route]})" : row[:route] }
    end
  end
end
