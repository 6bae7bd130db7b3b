# frozen_string_literal: true

module Fairlead
  # Picks the worker to be replaced because it has served many requests or has grown: `recycle_requests` and `recycle_memory`. One
  # at a time, and none while another leaves or boots.
  #
  # Workers that began together would reach the limit together, so the limit of each is up to a tenth lower.
  #
  # A `recycle_memory` below what the app needs would replace workers without end. So of the workers that reach it soon after their
  # start, each has to serve for twice as long as the one before, up to an hour, and the problem is reported.
  class WorkerRecycler
    INTERVAL = 1.0 # seconds between two checks
    JITTER = 0.1
    # Seconds of service within which a worker should not reach the limit of memory, and for which it serves at most if it has.
    SOON = 60.0
    LONGEST = 3600.0
    private_constant :INTERVAL, :JITTER, :SOON, :LONGEST

    # @return [WorkerRecycler, nil] nil: workers stay.
    def self.for(configuration, page)
      limits = [configuration.recycle_requests, configuration.recycle_memory]
      new(*limits) { |worker| page.get(worker.slot, :requests) } if limits.any?
    end

    def initialize(requests, memory, measure: ProcessUsage.method(:memory_from), random: Random, &answered)
      @requests = requests
      @memory = memory
      @measure = measure
      @random = random
      @answered = answered
      @jitter = {}
      @reached = {} # process id => seconds of service after which it had reached the limit of memory
      @service = 0.0 # seconds for which a worker serves that has reached it soon
      @next_check = 0.0
    end

    # @return [String, nil] that workers reach the limit of memory too soon.
    attr_reader :problem

    def deadline(now) = [@next_check, now].max

    # @return [Array(WorkerTable::Worker, String), nil] the worker to be replaced, and the reason.
    def due(workers, now)
      return if now < @next_check

      @next_check = now + INTERVAL
      lasting = workers.select { |worker| worker.regular? || worker.lane? }
      [@jitter, @reached].each { |known| known.keep_if { |pid, _| workers[pid] } }
      # Also while one leaves: how soon a worker reaches the limit counts from its own start.
      taken = lasting.select(&:serving?).to_h { |worker| [worker.pid, too_much(worker, now - worker.since)] }
      # A worker that is being replaced serves until its successor does.
      return if lasting.count(&:regular?) != workers.size || !lasting.all?(&:serving?) || workers.restarting?

      settle if @reached.empty? && lasting.all? { |worker| now - worker.since >= SOON }
      lasting.each { |worker| (why = reason(worker, taken[worker.pid], now - worker.since)) && (return [worker, why]) }
      nil
    end

    private

    # @param taken [Integer] see {#too_much}.
    def reason(worker, taken, served)
      answered = @requests ? @answered.call(worker) : 0
      return "it has answered #{answered} requests (recycle_requests #{@requests})" if @requests && answered >= @requests * part_of(worker)

      "it takes #{mebibytes(taken)} (recycle_memory #{mebibytes(@memory)})" if taken.positive? && served_enough?(worker, served)
    end

    def part_of(worker) = @jitter[worker.pid] ||= 1 - (@random.rand * JITTER)

    # @return [Integer] the bytes that a worker takes; 0 below the limit, and for one that has to serve for longer whatever it takes.
    def too_much(worker, served)
      return 0 if @memory.nil? || (@reached.fetch(worker.pid, SOON) < SOON && served < @service)

      limit = @memory * part_of(worker)
      taken = @measure.call(limit, worker.pid)
      return 0 if taken < limit

      @reached[worker.pid] ||= served
      taken
    end

    # @return [Boolean] whether a worker that has reached the limit of memory has served for long enough.
    def served_enough?(worker, served)
      reached = @reached.fetch(worker.pid)
      return settle if reached >= SOON
      return false if served < @service

      @service = (@service * 2).clamp(SOON, LONGEST)
      report(reached) unless @problem
      true
    end

    def settle
      @service = 0.0
      @problem = nil
      true
    end

    def report(seconds)
      Log.say(@problem = "A worker has reached #{mebibytes(@memory)} (recycle_memory) within #{[seconds.ceil, 1].max} s of its start: " \
                         "the app seems to need more. Raise the limit; until then, workers that reach it so soon are replaced ever " \
                         "more seldom, down to once an hour.")
    end

    def mebibytes(bytes) = "#{bytes >> 20} MiB"
  end
end
