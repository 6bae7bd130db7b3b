# frozen_string_literal: true

require "minitest/autorun"
require "json"
require "open3"
require "rbconfig"
require "tmpdir"
require_relative "../pool/aims"
require_relative "../pool/parts"
require_relative "../pool/results"
require_relative "../pool/row"

module PoolBench
  # What bench/fair_pool makes of what it measures.
  class PoolBenchTest < Minitest::Test
    PROGRAM = File.expand_path("../fair_pool", __dir__)

    def round(max, **others)
      { name: "fairlead-pool 1", rate: 500.0, min: 0.01, max:, mean: 0.06, errors: 0, histogram: [1] * 11, **others }
    end

    def table(key, ours, other, ruby: "ruby 3.3.8")
      rows = [ours, other&.merge(name: "connection_pool 3")].compact.map { |figures| Row.of([figures]) }
      JSON.parse(JSON.generate(Parts.named(key, 3_000).to_h.merge(ruby:, rows:)))
    end

    def verdicts(...) = Aims.of(table(...)).map(&:last)

    def test_rounds_become_medians_with_the_range_of_the_longest_wait_and_one_histogram
      row = Row.of([round(0.07), round(0.09, errors: 2), round(0.08, rate: 400.0)])

      assert_equal [0.08, 0.07, 0.09, 500.0, 2], row.values_at(:max, :low, :high, :rate, :errors)
      assert_equal [["0.025", 3], ["more", 3]], row[:histogram].values_at(0, -1)
    end

    def test_the_longest_wait_is_compared_with_the_ideal
      assert_equal [true, true, true], verdicts("threads", round(0.0767), round(6.2))
      assert_equal [false, true, true], verdicts("fibers", round(0.0769), round(6.2))
      assert_equal [true, true, true], verdicts("crowd", round(4.23), round(9.3))
      assert_equal [false, true, true], verdicts("crowd", round(4.25), round(9.3))
    end

    def test_fewer_requests_than_connection_pool_s_or_errors_are_misses
      assert_equal [true, false, false], verdicts("threads", round(0.07, errors: 1), round(6.2, rate: 501.0))
    end

    def test_the_cost_is_below_its_bound_or_not
      assert_equal [[true], [false]], [1.19, 1.2].map { |cost| verdicts("cost", { name: "fairlead-pool 1", microseconds: cost }, nil) }
    end

    def test_what_was_not_measured_is_open_and_nothing_is_aimed_at_on_jruby
      assert_equal [true, nil, true], verdicts("threads", round(0.07), nil)
      assert_empty verdicts("threads", round(0.07), nil, ruby: "jruby 9.4")
    end

    def test_a_part_takes_the_place_of_its_last_result_and_leaves_the_others
      Dir.mktmpdir do |folder|
        paths = [["cost", 1], ["threads", 2], ["cost", 3]].map { |key, rounds| Results.save({ key:, date: "today", rounds: }, folder) }

        assert_equal [["threads", 2], ["cost", 3]], JSON.parse(File.read(paths.last))["tables"].map { |found| found.values_at("key", "rounds") }
      end
    end

    def test_it_runs_a_part_with_a_pool_and_says_what_is_not_known
      output, status = Open3.capture2e(RbConfig.ruby, PROGRAM, "threads", "--requests", "64", "--only", "control")

      assert_predicate status, :success?, output
      assert_match(/^control \(no pool\) +\d+\.\d +0\.0\d\d/, output)
      assert_includes output, "? the longest wait at most 1.2 × the ideal"
    end

    def test_an_unknown_part_or_pool_is_refused_with_those_there_are
      output, status = Open3.capture2e(RbConfig.ruby, PROGRAM, "threads", "--only", "pond")

      assert_equal 1, status.exitstatus
      assert_match(/\Abench\/fair_pool: no pond here; there are threads, .*sequel/, output)
    end
  end
end
