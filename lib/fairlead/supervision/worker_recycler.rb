# frozen_string_literal: true

module Fairlead
  # Picks the worker to be replaced because it has served many requests or has grown: `recycle_requests` and `recycle_memory`. One
  # at a time, and none while another leaves or boots.
  #
  # Workers that began together would reach the limit together, so the limit of each is up to a tenth lower.
  class WorkerRecycler
    INTERVAL = 1.0 # seconds between two checks
    JITTER = 0.1
    private_constant :INTERVAL, :JITTER

    # @return [WorkerRecycler, nil] nil: workers stay.
    def self.for(configuration, page)
      limits = [configuration.recycle_requests, configuration.recycle_memory]
      new(*limits) { |worker| page.get(worker.slot, :requests) } if limits.any?
    end

    def initialize(requests, memory, measure: ProcessUsage.method(:memory), random: Random, &answered)
      @requests = requests
      @memory = memory
      @measure = measure
      @random = random
      @answered = answered
      @jitter = {}
      @next_check = 0.0
    end

    def deadline(now) = [@next_check, now].max

    # @return [Array(WorkerTable::Worker, String), nil] the worker to be replaced, and the reason.
    def due(workers, now)
      return if now < @next_check

      @next_check = now + INTERVAL
      lasting = workers.select { |worker| worker.regular? || worker.lane? }
      @jitter.keep_if { |pid, _| workers[pid] }
      # A worker that is being replaced serves until its successor does.
      return if lasting.count(&:regular?) != workers.size || !lasting.all?(&:serving?) || workers.restarting?

      lasting.each { |worker| (why = reason(worker)) && (return [worker, why]) }
      nil
    end

    private

    def reason(worker)
      part = @jitter[worker.pid] ||= 1 - (@random.rand * JITTER)
      answered = @requests ? @answered.call(worker) : 0
      return "it has answered #{answered} requests (recycle_requests #{@requests})" if @requests && answered >= @requests * part

      taken = @memory ? @measure.call(worker.pid) : 0
      "it takes #{taken >> 20} MiB (recycle_memory #{@memory >> 20} MiB)" if @memory && taken >= @memory * part
    end
  end
end
