# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # The text that Prometheus reads; metrics_test.rb has promtool judge all of it.
  class ExpositionTest < Test
    PROMETHEUS = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4," \
                 "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"

    def test_a_client_gets_the_format_that_it_prefers
      {
        PROMETHEUS => Exposition::OPEN_METRICS, "application/openmetrics-text" => Exposition::OPEN_METRICS, nil => Exposition::TEXT,
        "*/*" => Exposition::TEXT, "text/plain, application/openmetrics-text;q=0.9" => Exposition::TEXT,
        "application/openmetrics-text; version=0.0.1" => Exposition::TEXT, "application/openmetrics-text;q=0" => Exposition::TEXT,
        ";;,=;q=x" => Exposition::TEXT
      }.each { |accept, type| assert_equal type, Exposition.for(accept).content_type, accept.inspect }
    end

    def test_counters_have_a_family_of_their_own_name_in_each_format
      assert_equal <<~TEXT, written { |out| out.counter("a_total", "What.", { { x: 1 } => 2, nil => 3 }) }
        # HELP a_total What.
        # TYPE a_total counter
        a_total{x="1"} 2
        a_total 3
      TEXT
      assert_equal <<~TEXT, written(open_metrics: true) { |out| out.counter("a_total", "What.", { { x: 1 } => 2 }) }
        # HELP a What.
        # TYPE a counter
        a_total{x="1"} 2
        # EOF
      TEXT
    end

    def test_buckets_of_a_histogram_contain_the_ones_before
      assert_equal <<~TEXT, written { |out| out.histogram("h", "What.", [0.001, 1], { { r: "x" } => { counts: [2, 0, 3], sum: 4.5 } }) }
        # HELP h What.
        # TYPE h histogram
        h_bucket{r="x",le="0.001"} 2
        h_bucket{r="x",le="1.0"} 2
        h_bucket{r="x",le="+Inf"} 5
        h_sum{r="x"} 4.5
        h_count{r="x"} 5
      TEXT
    end

    def test_labels_are_escaped
      text = written { |out| out.gauge("g", "What.", { { x: "a\\b\"c\nd\xff" } => 1 }) }

      assert_includes text, "g{x=\"a\\\\b\\\"c\\nd\u{fffd}\"} 1\n"
    end

    private

    def written(**options) = Exposition.new(**options).tap { |out| yield out }.to_s
  end
end
