# frozen_string_literal: true

module Fairlead
  # The last hour of the server, a sample each five seconds, so that a dashboard that is opened now shows the past.
  class History
    INTERVAL = 5.0
    MOST = 720
    # Samples from one reading of the memory to the next: the kernel walks the pages of a process to find it.
    MEMORY = 6
    private_constant :MEMORY

    # @param page [SharedPage]
    # @param cpu [#call] returns the CPU time of a process, in seconds
    def initialize(page, cpu: ProcessUsage.method(:cpu), memory: ProcessUsage.method(:memory))
      @page = page
      @cpu = cpu
      @memory = memory
      @samples = []
      @number = 0
      @lock = Thread::Mutex.new
      @previous = nil
    end

    # Takes a sample of what has happened since the one before.
    #
    # @param reading [RecentTimes::Reading]
    def add(reading)
      workers = WorkerStats.of(@page)[:workers]
      now = { at: reading.at, times: reading.times, cpu: workers.to_h { |worker| [worker[:pid], @cpu.call(worker[:pid])] } }
      sample = { **moment(workers), **since(@previous, now) } if @previous
      @previous = now
      return unless sample

      @lock.synchronize do
        @number += 1
        @samples << sample
        @samples.shift if @samples.size > MOST
      end
    end

    # @param after [Integer] the number of the last sample that the reader has; 0: it has none.
    # @return [Hash] `{ interval:, number:, columns: }`: of each figure the values of the samples after that one, the oldest first. The
    #   last one has the number.
    def after(after)
      @lock.synchronize do
        count = after.between?(0, @number) ? @number - after : MOST
        samples = @samples.last(count)
        keys = @samples.last&.keys || []
        { interval: INTERVAL, number: @number, columns: keys.to_h { |key| [key, samples.map { |sample| sample[key] }] } }
      end
    end

    private

    def moment(workers)
      @bytes = workers.sum { |worker| @memory.call(worker[:pid]) } if (@number % MEMORY).zero?
      { at: Time.now.to_i, **%i[in_flight queued streams connections].to_h { |key| [key, workers.sum { |worker| worker[key] }] },
        memory: @bytes, stalled: workers.count { |worker| worker[:stalled] }, workers: workers.size }
    end

    def since(before, now)
      seconds = now[:at] - before[:at]
      times, times_before = now[:times], before[:times]
      service, queue = %i[service queue].map { |key| Histogram.of(times[key]) - Histogram.of(times_before[key]) }
      codes, kinds = %i[codes kinds].map do |key|
        times[key].to_h { |name, value| [name, round((value - times_before[key][name]) / seconds)] }
      end
      { cpu_percent: round(used(before[:cpu], now[:cpu]) / seconds * 100), p50: round(service.quantile(0.5)),
        p99: round(service.quantile(0.99)), queue_p99: round(queue.quantile(0.99)), **codes, **kinds }
    end

    # Of a worker that is new, all that it has used.
    def used(before, now) = now.sum { |pid, seconds| seconds ? [seconds - (before[pid] || 0.0), 0].max : 0.0 }

    # Digits that no chart shows would only be sent.
    def round(number) = number&.round(5)
  end
end
