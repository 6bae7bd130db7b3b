# frozen_string_literal: true

require_relative "statistics"

module Bench
  # All runs of one load, side by side. Figures are looked up by their name in a run, as "p99" or
  # :cpu_per_request; a run that failed has none, and counts for nobody.
  class Comparison
    attr_reader :runs

    # @param runs [Array<Hash{Symbol => Object}>] each with :server, :round, and figures or :failed.
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

    def total(server, figure) = by_round(server, figure).compact.sum

    def failures(server) = @runs.select { |run| run[:server] == server }.filter_map { |run| run[:failed] }

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

    # The same against the best of several in each round: the aims speak of "the faster of two". Peers that are
    # not there are passed over.
    #
    # @return [Float, nil] the median; nil when none of them has a figure.
    def times(figure, *peers)
      best = peers.map { |peer| by_round(peer, figure) }.transpose.map { |values| values.compact.max }
      Statistics.summary(Statistics.paired_ratios(by_round(reference, figure), best))&.median
    end

    # @return [Boolean] whether our runs had neither an error nor a wrong status, and none failed.
    def faultless?
      failures(reference).empty? && total(reference, :errors).zero? && total(reference, :non_2xx).zero?
    end

    private

    def rounds = @rounds ||= @runs.map { |run| run[:round] }.uniq.sort

    def by_round(server, figure)
      figure = figure.to_sym
      found = @runs.select { |run| run[:server] == server }.to_h { |run| [run[:round], run[figure]] }
      rounds.map { |round| found[round] }
    end
  end
end
