# frozen_string_literal: true

module Bench
  # What several runs of one figure say together. Medians, since one disturbed run must not move the result.
  module Statistics
    # A figure over all rounds.
    Summary = Data.define(:median, :minimum, :maximum, :count)

    module_function

    # @param values [Array<Numeric, nil>] one a round; nil where the run failed.
    # @return [Summary, nil] nil when there is no value at all.
    def summary(values)
      sorted = values.compact.sort
      return if sorted.empty?

      Summary.new(median: median(sorted), minimum: sorted.first, maximum: sorted.last, count: sorted.size)
    end

    # @param sorted [Array<Numeric>] in ascending order, not empty.
    def median(sorted)
      middle = sorted.size / 2
      sorted.size.odd? ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2.0
    end

    # Where the median of all that might be measured lies, with 95 % confidence, however the values are spread: between
    # the k-th smallest and the k-th largest, since as many on one side of it is as rare as as many heads of a coin.
    #
    # @param values [Array<Numeric>]
    # @return [Array(Numeric, Numeric), nil] nil where even all of them together do not say it: fewer than six.
    def interval(values)
      sorted = values.sort
      outside = 0
      ways = 1
      rank = sorted.size.times.find do |below|
        outside += ways
        ways = ways * (sorted.size - below) / (below + 1)
        2 * outside > 0.05 * (2**sorted.size)
      end
      [sorted[rank - 1], sorted[-rank]] if rank&.positive?
    end

    # Ratios of one round each: both runs of a pair saw the machine in the same mood, so that their ratio moves
    # less than the ratio of the medians would.
    #
    # @param ours [Array<Numeric, nil>] one a round.
    # @param theirs [Array<Numeric, nil>] one a round, in the same order.
    # @return [Array<Float>] the ratios of the rounds in which both have a value.
    def paired_ratios(ours, theirs)
      ours.zip(theirs).filter_map do |our, their|
        our.fdiv(their) if our && their && their.positive?
      end
    end
  end
end
