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
      { "GET / 0\tGET /next 0\tend" => "GET / 5\tend", "GET / 0\tend" => "GET /a 0\tend", "GET / 3\tmore" => "GET / 3\tend",
        "GET / 0\trefused BAD_HOST" => "GET / 3\tend" }.each do |ours, theirs|
        comparison.send(:note, "puma", "", Differential::Verdict.of(ours), Differential::Verdict.of(theirs))
      end
      assert_equal 4, comparison.found.size
    end

    # The code of a refusal explains nothing: there must be cause for it.
    def test_a_refusal_of_what_is_as_it_should_be_has_no_reason
      require_relative "differential/comparison"
      sound = ["GET /a?b=c HTTP/1.1\r\nHost: a:80\r\n\r\n", "GET / HTTP/1.0\r\nX_Y: \xC3\xA9\tz\r\n\r\n",
               "POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
               "OPTIONS * HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n"]
      comparison = Differential::Comparison.new(0, seed: 1)
      refusals = Differential::Comparison::REFUSED_BY_US.keys.product(sound)
      refusals.each do |code, bytes|
        comparison.send(:note, "puma", "\0#{bytes}".b, Differential::Verdict.of("refused #{code} 1"), Differential::Verdict.of("end"))
      end
      assert_equal refusals.size, comparison.found.size, comparison.reasons.to_s
    end

    # What an old Node is known for explains nothing else, and no newer Node.
    def test_only_an_old_node_may_end_a_head_with_a_bare_cr
      require_relative "differential/comparison"
      bare = "GET / HTTP/1.1\r\nHost: a\r\n\r:".b
      { 6 => [bare, 0], 9 => [bare, 1], 5 => ["GET / HTTP/1.1\r\nHost: a\r\nX:".b, 1] }.each do |node, (bytes, found)|
        comparison = Differential::Comparison.new(0, seed: 1, node:)
        comparison.send(:note, "node", bytes, Differential::Verdict.of("more"), Differential::Verdict.of("GET / 0\tend"))
        assert_equal found, comparison.found.size, "Node's parser #{node}"
      end
    end
  end
end
