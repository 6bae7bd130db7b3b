# frozen_string_literal: true

module Fairlead
  # Text in one of the formats that Prometheus reads: its own, version 0.0.4, or OpenMetrics 1.0.
  #
  # @see https://prometheus.io/docs/instrumenting/exposition_formats/
  # @see https://github.com/prometheus/OpenMetrics/blob/v1.0.0/specification/OpenMetrics.md
  class Exposition
    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    ESCAPES = { "\\" => "\\\\", "\"" => "\\\"", "\n" => "\\n" }.freeze
    private_constant :ESCAPES

    # @param accept [String, nil] the field Accept of a request.
    # @return [Exposition] in the format that the client prefers.
    def self.for(accept)
      weights = accept.to_s.downcase.split(",").to_h do |range|
        type, *parameters = range.split(";").map(&:strip)
        known = parameters.filter_map { |parameter| parameter[/\Aversion="?([\d.]+)/, 1] }.first
        weight = parameters.filter_map { |parameter| parameter[/\Aq=([\d.]+)\z/, 1] }.first
        [[type, known], weight ? weight.to_f : 1.0]
      end
      open = weights.values_at(["application/openmetrics-text", "1.0.0"], ["application/openmetrics-text", nil]).compact.max.to_f
      text = weights.select { |(type, _), _| %w[text/plain text/* */*].include?(type) }.values.max.to_f
      new(open_metrics: open.positive? && open >= text)
    end

    def initialize(open_metrics: false)
      @open_metrics = open_metrics
      @text = +""
      @escaped = {}
    end

    # @return [String] the media type of {#to_s}.
    def content_type = @open_metrics ? OPEN_METRICS : TEXT

    def gauge(name, help, samples) = family(name, "gauge", help) { samples.each { |labels, value| sample(name, labels, value) } }

    # @param name [String] with `_total` at its end.
    # @param samples [Hash{Hash => Numeric}, Array] labels => value; nil for the labels: none.
    def counter(name, help, samples) = family(name, "counter", help) { samples.each { |labels, value| sample(name, labels, value) } }

    # @param samples [Hash{Hash => Hash}] labels => `{ counts:, sum: }`: how many were at most each bound and above the one before, and
    #   how many above the last one; and the sum of all.
    # @param bounds [Array<Float>]
    def histogram(name, help, bounds, samples)
      steps = [*bounds.map(&:to_f), "+Inf"].map { |bound| "le=\"#{bound}\"} " }
      family(name, "histogram", help) do
        samples.each { |labels, value| buckets(name, text_of(labels), steps, value) }
      end
    end

    # @yieldparam text [String] to which the lines of the family's samples are to be added.
    def family(name, type, help)
      name = name.delete_suffix("_total") if type == "counter" && @open_metrics
      @text << "# HELP #{name} #{help}\n# TYPE #{name} #{type}\n"
      yield @text
    end

    def to_s = @open_metrics ? "#{@text}# EOF\n" : @text

    private

    def sample(name, labels, value)
      labels = text_of(labels)
      @text << name
      @text << "{" << labels << "}" unless labels.empty?
      @text << " " << value.to_s << "\n"
    end

    def buckets(name, labels, steps, value)
      sum = 0
      start = "#{name}_bucket{#{"#{labels}," unless labels.empty?}"
      steps.zip(value[:counts]) { |step, count| @text << start << step << (sum += count).to_s << "\n" }
      braces = "{#{labels}}" unless labels.empty?
      @text << "#{name}_sum#{braces} #{value[:sum]}\n#{name}_count#{braces} #{sum}\n"
    end

    def text_of(labels) = (labels || {}).map { |label, value| "#{label}=\"#{escape(value)}\"" }.join(",")

    # Most values are harmless: they are looked at once.
    def escape(value)
      @escaped[value] ||= value.to_s.encode(Encoding::UTF_8, invalid: :replace, undef: :replace).scrub.gsub(/[\\"\n]/, ESCAPES)
    end
  end
end
