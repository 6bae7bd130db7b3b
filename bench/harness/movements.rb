# frozen_string_literal: true

require "json"
require_relative "comparison"

module Bench
  # What moved between two results, beyond what chance explains. The machine's mood moves all figures of a run at once,
  # so what is compared is the ratio to each peer that both runs have; without a common peer, or with fewer than three rounds
  # of each, our figure itself. Pools, whose longest wait has an ideal that no mood moves, are compared by our figure alone.
  #
  # Two medians differ beyond the noise when the ranges of all rounds do not overlap, and they differ by more than 5 %.
  # Of fewer than three rounds nobody knows how wide the noise is.
  class Movements
    LEAST = 0.05
    ROUNDS = 3
    LESS_IS_BETTER = %w[slowest extra_memory p99].freeze
    # Of ours, all that is no good answer: nobody is faster who does not answer.
    FAULTS = %i[errors non_2xx].freeze
    POOL = "fairlead-pool "
    private_constant :LEAST, :LESS_IS_BETTER, :FAULTS, :POOL

    # before and after are {Statistics::Summary}s.
    Movement = Data.define(:place, :figure, :before, :after, :more_is_better) do
      def change = after.median.fdiv(before.median) - 1
      def told? = [before, after].all? { |summary| summary.count >= ROUNDS }
      def beyond_noise? = told? && change.abs > LEAST && !overlap?
      def worse? = beyond_noise? && (change.negative? == more_is_better)
      def overlap? = before.maximum >= after.minimum && after.maximum >= before.minimum

      def to_s
        verdict = if !told? then "?"
                  elsif beyond_noise? then worse? ? "WORSE" : "better"
                  else "same"
                  end
        format("%-6s %-28s %-34s %10.4g → %10.4g (%+.1f %%)", verdict, place, figure, before.median, after.median,
          change * 100)
      end
    end

    # Wrong and missing answers, counted over all rounds: none is noise.
    Faults = Data.define(:place, :before, :after) do
      def told? = true
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
      files.map { |file| JSON.parse(File.read(file)) }.to_h { |result| [result.fetch("workload"), result] }
    rescue SystemCallError, JSON::ParserError, KeyError => error
      raise UsageError, "#{path} is no result of bin/bench (#{error.message.lines.first.strip})"
    end

    def self.compare(name, old, new)
      pairs(old, new, "loads", "name") { |*loads| compare_load(name, *loads) } +
        pairs(old, new, "tables", "key") { |*tables| compare_pools(name, *tables) }
    end

    # Yields what has the same name in both results.
    def self.pairs(old, new, list, name)
      known = (old[list] || []).to_h { |entry| [entry[name], entry] }
      (new[list] || []).flat_map { |entry| known.key?(entry[name]) ? yield(known[entry[name]], entry) : [] }
    end

    def self.compare_load(workload, old, new)
      place = "#{workload} #{new["name"]}"
      comparisons = [old, new].map { |load| Comparison.read(load) }
      figures = [new["main_figure"], "p99"].uniq.flat_map { |figure| compare_figure(place, figure, comparisons) }
      cpu = movement(place, "cpu_per_request", false, comparisons) { |one| one.summary(one.reference, :cpu_per_request) }
      counts = comparisons.map do |one|
        FAULTS.sum { |fault| one.total(one.reference, fault) } + one.failures(one.reference).size
      end
      [*figures, cpu, faults(place, counts)].compact
    end

    def self.compare_figure(place, figure, comparisons)
      better = !LESS_IS_BETTER.include?(figure)
      peers = comparisons.map(&:servers).reduce(:&).drop(1)
      ratios = peers.filter_map do |peer|
        movement(place, "#{figure} ÷ #{peer}", better, comparisons) { |one| one.ratio(peer, figure) }
      end
      ours = [movement(place, figure, better, comparisons) { |one| one.summary(one.reference, figure) }].compact
      [ratios, ours].find { |movements| movements.any?(&:told?) } || [ratios, ours].find(&:any?) || []
    end

    # The longest wait, or the cost, of our pool.
    def self.compare_pools(workload, old, new)
      place = "#{workload} #{new["key"]}"
      tables = [old, new].map { |table| [table, table["rows"].find { |row| row["name"].start_with?(POOL) }] }
      return [] unless tables.all?(&:last)

      figure = new["key"] == "cost" ? "microseconds" : "max"
      moved = movement(place, figure, false, tables) do |table, row|
        Statistics::Summary.new(median: row[figure], minimum: row["low"], maximum: row["high"], count: table["rounds"])
      end
      [moved, faults(place, tables.map { |_, row| row["errors"].to_i })].compact
    end

    # Shown where there are any.
    def self.faults(place, counts) = counts.sum.zero? ? nil : Faults.new(place, *counts)

    # Yields each of two, and wants its summary.
    def self.movement(place, figure, better, both, &)
      before, after = both.map(&)
      Movement.new(place:, figure:, before:, after:, more_is_better: better) if after && before&.median&.positive?
    end
    private_class_method :read, :compare, :pairs, :compare_load, :compare_figure, :compare_pools, :faults, :movement

    def initialize(movements)
      @movements = movements
    end

    def worse? = @movements.any?(&:worse?)

    # @return [String] those that moved first, then the others.
    def to_s
      moved, same = @movements.partition(&:beyond_noise?)
      open = @movements.count { |movement| !movement.told? }
      counts = "#{moved.size} of #{@movements.size} figures moved beyond the noise, #{moved.count(&:worse?)} for the worse"
      counts << "; #{open} cannot be told (?) without #{ROUNDS} rounds on both sides" if open.positive?
      [*moved, *same, counts].join("\n")
    end
  end
end
