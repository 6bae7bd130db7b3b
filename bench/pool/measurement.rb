# frozen_string_literal: true

module PoolBench
  # What the workers' requests took, and how it is shown.
  Measurement = Struct.new(:name, :times, :seconds, :ideal, :errors, keyword_init: true) do
    BUCKETS = 10
    TOP = 0.25 # seconds; the published histogram ends here

    def rate = times.size / seconds
    def maximum = times.max || Float::INFINITY
    def minimum = times.min || 0.0
    def mean = times.empty? ? 0.0 : times.sum / times.size

    def row
      format("%-24s %10.1f %8.3f %8.3f %8.3f %11.2f %7d", name, rate, minimum, maximum, mean, maximum / ideal,
        errors)
    end

    # @return [Hash] for the report.
    def to_h
      width = TOP / BUCKETS
      counts = histogram_counts
      buckets = Array.new(BUCKETS) { |bucket| [format("%.3f", (bucket + 1) * width), counts.fetch(bucket, 0)] }
      {
        name: name, rate: rate, min: minimum, max: maximum, mean: mean, ratio: maximum / ideal, errors: errors,
        histogram: buckets << ["more", counts.fetch(BUCKETS, 0)]
      }
    end

    def self.header
      format("%-24s %10s %8s %8s %8s %11s %7s", "", "requests/s", "min s", "max s", "mean s", "max ÷ ideal",
        "errors")
    end

    # @return [Array<String>] ten buckets up to 0.25 s, and what is beyond.
    def histogram
      width = TOP / BUCKETS
      counts = histogram_counts
      most = [counts.values.max || 1, 1].max
      Array.new(BUCKETS + 1) do |bucket|
        count = counts.fetch(bucket, 0)
        label = format("%.3f–%.3f s", bucket * width, (bucket + 1) * width)
        label = "over #{TOP} s".ljust(label.size) if bucket == BUCKETS
        bar = "█" * (count * 50.0 / most).ceil
        format("  %s %6d %s", label, count, bar).rstrip
      end
    end

    def histogram_counts
      times.map { |time| [(time / (TOP / BUCKETS)).to_i, BUCKETS].min }.tally
    end
  end
end
