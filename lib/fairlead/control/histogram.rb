# frozen_string_literal: true

module Fairlead
  # How often a time fell between which bounds, as `SharedPage#times` counts it.
  #
  # @!attribute counts [Array<Integer>] of each bucket alone; the last one has no upper bound.
  # @!attribute sum [Float] seconds
  Histogram = Data.define(:counts, :sum) do
    # @param row [Hash, nil] `{ counts:, sum: }`; nil: nothing was counted.
    def self.of(row) = new(counts: row ? row[:counts] : [0] * (SharedPage::BOUNDS.size + 1), sum: row ? row[:sum] : 0.0)

    # @return [Histogram] what was counted since an earlier reading.
    def -(other) = with(counts: counts.zip(other.counts).map { |now, before| [now - before, 0].max }, sum: sum - other.sum)

    def size = counts.sum

    # @param share [Float] from 0 to 1; 0.99: all but one of a hundred are below.
    # @return [Float, nil] seconds, between the bounds in proportion; at most the last bound. nil: nothing was counted.
    def quantile(share)
      return if size.zero?

      rank = share * size
      below = 0
      bucket = counts.index { |count| (below += count) >= rank && count.positive? }
      lower = bucket.zero? ? 0.0 : SharedPage::BOUNDS[bucket - 1]
      upper = SharedPage::BOUNDS[bucket] or return lower
      lower + ((upper - lower) * (rank - below + counts[bucket]) / counts[bucket])
    end
  end
end
