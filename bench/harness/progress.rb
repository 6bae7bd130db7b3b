# frozen_string_literal: true

require_relative "deadline"

module Bench
  # Says on standard error what was just measured, and how long the rest will take.
  class Progress
    # What other processes used of the machine while we measured, in cores: more makes figures doubtful.
    NOISE = 0.15

    # @return [String] "2:05:30", or "5:30".
    def self.clock(seconds)
      minutes, seconds = seconds.round.divmod(60)
      hours, minutes = minutes.divmod(60)
      hours.positive? ? format("%d:%02d:%02d", hours, minutes, seconds) : format("%d:%02d", minutes, seconds)
    end

    # @param deadline [Deadline] which ends the call before all is done.
    def initialize(output = $stderr, deadline: Deadline.new)
      @output = output
      @deadline = deadline
    end

    # Says beforehand how long a workload will take, about.
    #
    # @param seconds [Float]
    def plan(name, seconds)
      (@plan ||= {})[name] = seconds
    end

    # @return [Float] seconds, of all that have not started yet.
    def planned = (@plan || {}).values.sum

    def start(steps, name = nil)
      @plan&.delete(name)
      @steps = steps
      @done = 0
      @started = now
    end

    # @param results [Array<(Workload::Load, Hash)>]
    def step(round, server, results)
      @done += 1
      left = ((now - @started) / @done * (@steps - @done)) + planned
      lines = results.map { |load, run| line(load, run) }
      stop = ", #{Progress.clock([@deadline.left, 0].max)} of them now" if @deadline.left && @deadline.left < left
      @output.puts "[#{Progress.clock(left)} left#{stop}] round #{round} #{server}: #{lines.join("  ")}"
    end

    private

    def line(load, run)
      return "#{load.name} FAILED (#{run[:failed]})" if run[:failed]

      figure = load.generator.main_figure
      errors = run[:errors] + run[:non_2xx]
      [
        load.name, run[figure].round(figure == :requests_per_second ? 0 : 1),
        ("(#{errors} errors)" if errors.positive?),
        ("(others used #{run[:other_cpu].round(2)} cores)" if run[:other_cpu] > NOISE)
      ].compact.join(" ")
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
