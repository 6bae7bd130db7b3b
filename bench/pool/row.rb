# frozen_string_literal: true

require_relative "trial"

module PoolBench
  # A pool's rounds in one line: medians, and the range of the figure that matters most.
  module Row
    module_function

    # @param rounds [Array<Hash>] what {Trial#run} returned, each with the pool's name.
    # @return [Hash{Symbol => Object}] low and high are of the longest wait, or of the cost.
    def of(rounds)
      main = rounds.first.key?(:microseconds) ? :microseconds : :max
      figures = rounds.first.keys - %i[name errors histogram]
      range = rounds.map { |round| round[main] }.minmax
      row = { name: rounds.first[:name], **figures.to_h { |figure| [figure, median(rounds, figure)] } }
      row.update(low: range[0], high: range[1])
      row[:errors] = rounds.sum { |round| round[:errors] } if rounds.first.key?(:errors)
      row[:histogram] = histogram(rounds) if rounds.first.key?(:histogram)
      row
    end

    # Of all rounds together: the upper end of each bucket, and how many there were.
    def histogram(rounds)
      counts = rounds.map { |round| round[:histogram] }.transpose.map(&:sum)
      labels = Array.new(Trial::BUCKETS) { |bucket| format("%.3f", (bucket + 1) * Trial::BUCKET) }
      [*labels, "more"].zip(counts)
    end

    def median(rounds, figure)
      sorted = rounds.map { |round| round[figure] }.sort
      middle = sorted.size / 2
      sorted.size.odd? ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2.0
    end

    def header(part)
      return format("%-24s %10s", "", "µs") if part.cost?

      format("%-24s %10s %8s %8s %17s %8s %7s", "", "requests/s", "min s", "max s", "", "mean s", "errors")
    end

    def line(row)
      return format("%-24<name>s %10.2<microseconds>f (%<low>.2f–%<high>.2f)", row) if row.key?(:microseconds)

      format("%-24<name>s %10.1<rate>f %8.3<min>f %8.3<max>f (%7.3<low>f–%7.3<high>f) %8.3<mean>f %7<errors>d", row)
    end

    # @param row [Hash{String => Object}] of a result.
    # @return [Array<String>] the histogram, for people.
    def bars(row)
      most = [row["histogram"].map(&:last).max, 1].max
      row["histogram"].map do |label, count|
        format("  %-7s %6d %s", label == "more" ? label : "–#{label}", count, "█" * (count * 50.0 / most).ceil).rstrip
      end
    end
  end
end
