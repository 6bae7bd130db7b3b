# frozen_string_literal: true

require_relative "statistics"

module Bench
  # All runs of one load, side by side. Figures are looked up by their name in a run, as "p99" or
  # :cpu_per_request; a run that failed has none, and counts for nobody. Of ours that were repeated the first one is
  # compared, since nobody else has a second one; the last one is what a bound is asked of.
  class Comparison
    attr_reader :runs

    # @param load [Hash{String => Object}] one of a result's, as it was read.
    # @return [Comparison]
    def self.read(load, order: load["summary"].keys)
      new(load["runs"].map { |run| run.transform_keys(&:to_sym) }, order:)
    end

    # @param runs [Array<Hash{Symbol => Object}>] each with :server, :round, and figures or :failed; where it was repeated,
    #   the last one's, with the earlier ones as :misses.
    # @param order [Array<String>] the servers' labels in the order to show them, the first being the one that
    #   the others are compared with. Those without a run are left out.
    def initialize(runs, order: [])
      @runs = runs
      @order = order
    end

    def servers
      @servers ||= @runs.map { |run| run[:server] }.uniq.sort_by { |label| @order.index(label) || @order.size }
    end

    def reference = servers.first

    # @return [Statistics::Summary, nil]
    def summary(server, figure) = Statistics.summary(by_round(server, figure))

    def median(figure, server = reference) = summary(server, figure)&.median

    def total(server, figure) = runs_of(server).flat_map { |run| attempts(run) }.sum { |run| run[figure] || 0 }

    def failures(server) = runs_of(server).flat_map { |run| attempts(run) }.filter_map { |run| run[:failed] }

    # The reference's figure divided by a server's, round by round.
    #
    # @return [Statistics::Summary, nil]
    def ratio(server, figure)
      Statistics.summary(Statistics.paired_ratios(by_round(reference, figure), by_round(server, figure)))
    end

    # @return [Array(Float, Float), nil] where the ratio's median lies, with 95 % confidence; nil with too few rounds.
    def interval(server, figure)
      Statistics.interval(Statistics.paired_ratios(by_round(reference, figure), by_round(server, figure)))
    end

    # The same against the best of several in each round: the aims speak of "the faster of two". A round in which one of
    # them has no figure counts not at all: what is left may be the easier rival.
    #
    # @return [Float, nil] the median; nil when there is no round in which all of them have a figure.
    def times(figure, *peers)
      best = peers.map { |peer| by_round(peer, figure) }.transpose.map { |values| values.max unless values.include?(nil) }
      Statistics.summary(Statistics.paired_ratios(by_round(reference, figure), best))&.median
    end

    # @return [Boolean] whether a figure is there in each of our runs, and at most so much.
    def within?(figure, most) = runs_of(reference).all? { |run| run[figure]&.<=(most) }

    # @return [Array<Hash{Symbol => Object}>] our runs that were repeated, since they missed their bound, each with what
    #   the control took as :control.
    def misses = runs_of(reference).flat_map { |run| attempts(run)[0...-1] }

    # @return [Boolean] whether our runs had neither an error nor a wrong status, and none failed.
    def faultless?
      failures(reference).empty? && total(reference, :errors).zero? && total(reference, :non_2xx).zero?
    end

    private

    def rounds = @rounds ||= @runs.map { |run| run[:round] }.uniq.sort

    def runs_of(server) = @runs.select { |run| run[:server] == server }

    def attempts(run) = [*run[:misses]&.map { |missed| missed.transform_keys(&:to_sym) }, run]

    def by_round(server, figure)
      found = runs_of(server).to_h { |run| [run[:round], attempts(run).first[figure.to_sym]] }
      rounds.map { |round| found[round] }
    end
  end
end
