# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # Covers control/histogram.rb
  class RecentTimesTest < Test
    BOUNDS = SharedPage::BOUNDS
    private_constant :BOUNDS

    def test_a_quantile_is_between_the_bounds_of_its_bucket
      one = histogram(0.01 => 50, 0.1 => 49, 1.0 => 1)

      assert_in_delta 0.01, one.quantile(0.5)
      assert_in_delta 0.1, one.quantile(0.99)
      assert_in_delta 0.005 + (0.005 / 2), histogram(0.01 => 2).quantile(0.5)
      assert_operator one.quantile(1.0), :<=, 1.0
      assert_nil histogram.quantile(0.5)
    end

    def test_what_exceeds_all_bounds_counts_as_the_last_one
      assert_in_delta BOUNDS.last, Histogram.new(counts: [0] * BOUNDS.size + [3], sum: 500.0).quantile(0.99)
    end

    def test_the_first_figures_are_those_since_the_start
      recent = RecentTimes.new(90.0)
      figures = recent.figures(reading(100.0, "a" => { 0.01 => 20 }))

      assert_in_delta 2.0, figures[:requests]
      assert_equal ["a", 20], figures[:routes].first.values_at(:route, :count)
    end

    def test_later_ones_are_those_of_the_last_minute
      recent = RecentTimes.new(0.0)
      (100..180).step(2) { |at| recent.figures(reading(at.to_f, "a" => { 0.01 => at * 10 }, "b" => { 1.0 => 7 })) }
      figures = recent.figures(reading(182.0, "a" => { 0.01 => 1820 }, "b" => { 1.0 => 7 }))

      assert_in_delta 60, figures[:seconds], 6
      assert_operator figures[:p99], :<=, 0.01, "b was earlier"
      assert_in_delta 10.0, figures[:requests]
      assert_equal [["a", 1820], ["b", 7]], figures[:routes].map { |row| row.values_at(:route, :count) }
      assert_nil figures[:routes].last[:p50]
    end

    def test_a_server_that_was_started_anew
      recent = RecentTimes.new(0.0)
      recent.figures(reading(100.0, "a" => { 0.01 => 20 }))
      figures = recent.figures(reading(110.0, "a" => { 0.01 => 5 }))

      assert_operator figures[:requests], :>=, 0
      assert_equal 5, figures[:routes].first[:count]
    end

    private

    def histogram(counts = {}) = Histogram.of(row(counts))

    # @param counts [Hash{Float => Integer}] by upper bounds
    def row(counts) = { counts: [*BOUNDS, nil].map { |bound| counts.fetch(bound, 0) }, sum: counts.sum { |bound, count| bound * count } }

    def reading(at, routes)
      all = routes.values.inject { |sum, counts| sum.merge(counts) { |_, one, other| one + other } }
      rows = routes.map { |route, counts| { route:, count: counts.values.sum, errors: 0, service: row(counts), kinds: { cpu: 0.0 } } }
      RecentTimes.from({ times: { service: row(all), queue: row(all), codes: { "2xx": 1 }, kinds: { cpu: at } }, route_times: rows }, at:)
    end
  end
end
