# frozen_string_literal: true

require "json"

module Bench
  # What moved between two results, beyond what chance explains. The machine's mood moves all figures of a run at once,
  # so what is compared is the ratio to each peer that both runs have; without a common peer, our figure itself.
  #
  # Two medians differ beyond the noise when the ranges of all rounds do not overlap, and they differ by more than 5 %.
  class Movements
    LEAST = 0.05
    LESS_IS_BETTER = %w[slowest extra_memory p99].freeze
    private_constant :LEAST, :LESS_IS_BETTER

    # Of ours, all that is no good answer: nobody is faster who does not answer.
    FAULTS = %w[errors non_2xx failed].freeze
    private_constant :FAULTS

    # before and after are summaries: median, minimum, maximum.
    Movement = Data.define(:place, :figure, :before, :after, :more_is_better) do
      def change = after["median"].fdiv(before["median"]) - 1
      def beyond_noise? = change.abs > LEAST && !overlap?
      def worse? = beyond_noise? && (change.negative? == more_is_better)

      def overlap?
        before["maximum"] >= after["minimum"] && after["maximum"] >= before["minimum"]
      end

      def to_s
        verdict = beyond_noise? ? (worse? ? "WORSE" : "better") : "same"
        format("%-6s %-28s %-34s %10.4g → %10.4g (%+.1f %%)", verdict, place, figure, before["median"],
          after["median"], change * 100)
      end
    end

    # Wrong and missing answers, counted over all rounds: none is noise.
    Faults = Data.define(:place, :before, :after) do
      def beyond_noise? = before != after
      def worse? = after > before

      def to_s
        verdict = beyond_noise? ? (worse? ? "WORSE" : "better") : "same"
        format("%-6s %-28s %-34s %10d → %10d", verdict, place, "errors, non-2xx and failed rounds", before, after)
      end
    end

    # @param before [String] the path of a result, or of a folder of them.
    # @raise [UsageError] when there is nothing to compare.
    def self.between(before, after)
      old, new = [before, after].map { |path| read(path) }
      common = old.keys & new.keys
      raise UsageError, "#{before} and #{after} have no workload in common" if common.empty?

      Movements.new(common.flat_map { |name| compare(name, old[name], new[name]) })
    end

    def self.read(path)
      files = File.directory?(path) ? Dir[File.join(path, "*.json")] : [path]
      results = files.map { |file| JSON.parse(File.read(file)) }
      results.select { |result| result["loads"] }.to_h { |result| [result["workload"], result] }
    rescue SystemCallError, JSON::ParserError => error
      raise UsageError, "#{path} is no result of bin/bench (#{error.message.lines.first.strip})"
    end

    def self.compare(name, old, new)
      loads = old["loads"].to_h { |load| [load["name"], load] }
      new["loads"].filter_map { |load| loads[load["name"]] && compare_load(name, loads[load["name"]], load) }.flatten
    end

    def self.compare_load(workload, old, new)
      place = "#{workload} #{new["name"]}"
      main = new["main_figure"]
      ours = new["summary"].keys.first
      better = !LESS_IS_BETTER.include?(main)
      peers = (old["summary"].keys & new["summary"].keys).drop(1)
      ratios = peers.filter_map do |peer|
        figures = [old, new].map { |load| load.dig("summary", peer, "ratio") }
        movement(place, "#{main} ÷ #{peer}", *figures, better)
      end
      cpu = %w[cpu_per_request].filter_map do |figure|
        movement(place, figure, old.dig("summary", ours, figure), new.dig("summary", ours, figure), false)
      end
      alone = movement(place, main, old.dig("summary", ours, main), new.dig("summary", ours, main), better)
      (ratios.empty? ? [alone].compact : ratios) + cpu + faults(place, *[old, new].map { |load| load["summary"][ours] })
    end

    # Shown where there are any.
    def self.faults(place, *entries)
      counts = entries.map { |entry| entry.to_h.values_at(*FAULTS).sum(&:to_i) }
      counts.sum.zero? ? [] : [Faults.new(place, *counts)]
    end

    def self.movement(place, figure, before, after, better)
      return unless before && after && before["median"].to_f.positive? && after["median"]

      Movement.new(place:, figure:, before:, after:, more_is_better: better)
    end
    private_class_method :read, :compare, :compare_load, :faults, :movement

    def initialize(movements)
      @movements = movements
    end

    def worse? = @movements.any?(&:worse?)

    # @return [String] those that moved first, then the others.
    def to_s
      moved, same = @movements.partition(&:beyond_noise?)
      counts = "#{moved.size} of #{@movements.size} figures moved beyond the noise, #{moved.count(&:worse?)} for the worse"
      [*moved, *same, counts].join("\n")
    end
  end
end
