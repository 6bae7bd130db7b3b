# frozen_string_literal: true

module PoolBench
  # One pool, one part, one round.
  class Trial
    # The published histogram's buckets, in seconds, and one for what is beyond.
    BUCKETS = 10
    BUCKET = 0.025
    COUNT = 300_000
    private_constant :COUNT

    def initialize(contestant, part)
      @with = contestant.with
      @part = part
    end

    # @return [Hash{Symbol => Object}] the figures.
    def run = @part.cost? ? { microseconds: microseconds } : shared

    private

    def shared
      times = []
      errors = 0
      work = lambda do
        started = now
        @with.call { sleep HOLD }
        times << now - started
      rescue StandardError
        errors += 1
      end
      seconds = nil
      in_reactor do
        warm_up
        begun = now
        all(@part.workers, @part.requests / @part.workers, work)
        seconds = now - begun
      end
      raise "no request was served" if times.empty?

      figures(times, seconds).merge(errors: errors)
    end

    def figures(times, seconds)
      counts = times.map { |time| [(time / BUCKET).to_i, BUCKETS].min }.tally
      {
        rate: times.size / seconds, min: times.min, max: times.max, mean: times.sum / times.size,
        histogram: (Array.new(BUCKETS + 1) { |bucket| counts.fetch(bucket, 0) } if @part.histogram?)
      }.compact
    end

    # All connections exist before the clock starts.
    def warm_up = all(SIZE, 1, -> { @with.call { sleep HOLD } })

    def in_reactor(&block)
      return yield if @part.kind == :threads

      require "async"
      Sync(&block)
    end

    def all(workers, each, work)
      body = -> { each.times { work.call } }
      if @part.kind == :threads
        Array.new(workers) { Thread.new(&body) }.each(&:join)
      else
        Array.new(workers) { Async { body.call } }.each(&:wait)
      end
    end

    def microseconds
      with = @with
      Array.new(5) do
        started = now
        index = 0
        while index < COUNT
          with.call { index }
          index += 1
        end
        (now - started) * 1e6 / COUNT
      end.min
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
