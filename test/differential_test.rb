# frozen_string_literal: true

require_relative "helper"

module Fairlead
  # What other parsers make of the same bytes. `rake differential` compares a million; here are some of them.
  class DifferentialTest < Test
    COUNT = 10_000

    def test_each_difference_has_a_reason
      built = system("make", "--quiet", "-C", File.join(ROOT, "test/core"), "build/verdicts")
      assert built, "test/core/verdicts.c does not compile"
      require_relative "differential/comparison"
      comparison = Differential::Comparison.new(COUNT, seed: 1).run

      assert_empty comparison.found.first(5).map(&:to_s)
      comparison.peers.each do |peer|
        assert_operator comparison.same[peer], :>, COUNT / 4, peer
        assert_operator comparison.reasons[peer].size, :>, 5, peer
      end
      skip "Node is not installed: only Puma was asked" unless comparison.peers.include?("node")
    end

    # Requests that both take, but read differently, are never explained away.
    def test_a_request_that_is_read_in_two_ways_has_no_reason
      require_relative "differential/comparison"
      comparison = Differential::Comparison.new(0, seed: 1)
      { "GET / 0;GET /next 0;end" => "GET / 5;end", "GET / 0;end" => "GET /a 0;end", "GET / 3;more" => "GET / 3;end",
        "GET / 0;refused BAD_HOST" => "GET / 3;end" }.each do |ours, theirs|
        comparison.send(:note, "puma", "", Differential::Verdict.of(ours), Differential::Verdict.of(theirs))
      end
      assert_equal 4, comparison.found.size
    end
  end
end
