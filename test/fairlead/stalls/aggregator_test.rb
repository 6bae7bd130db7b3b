# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  class Stall
    class AggregatorTest < Test
      def setup = @aggregator = Aggregator.new

      def test_the_first_of_a_route_makes_a_line
        assert_equal "GET /a stalled for 0.100 s: computing. A standby took over. Wrap it in Fairlead.offload { … }, or " \
                     "move it to a job.", @aggregator.add(stall(standby: true), now: 0)
      end

      def test_what_computes_while_nothing_waits_needs_no_advice
        line = @aggregator.add(stall, now: 0)

        assert line.end_with?("computing. Nothing else waited. As long as that is so, it needs no change."), line
      end

      def test_code_that_is_loaded_is_no_fault_of_the_app
        line = @aggregator.add(stall(backtrace: ["/a.rb:1:in `<main>'", "/b.rb:1:in `require'", "/c.rb:1:in `call'"]), now: 0)

        assert line.end_with?("It was loading code, which happens once."), line
      end

      def test_the_pattern_of_a_route_is_named_and_what_the_app_calls_it_instead
        known = { path: "/orders/7", route: "GET /orders/:id" }

        assert_match(%r{\AGET /orders/7 \(GET /orders/:id\) stalled}, @aggregator.add(stall(**known), now: 0))
        assert_match(%r{\AGET /orders/7 \(orders#show\) stalled}, Aggregator.new.add(stall(**known, action: "orders#show"), now: 0))
      end

      def test_more_of_it_are_counted_and_told_with_the_next_line
        lines = [0, 1, 59, 61].map { |now| @aggregator.add(stall, now:) }

        assert_equal [true, false, false, true], lines.map { |line| !line.nil? }
        assert lines.last.end_with?("(2 more of these since the last line.)")
        assert_equal [4, 0.4], @aggregator.worst.first.then { |entry| [entry[:count], entry[:total].round(3)] }
      end

      # A view that computes is in another place each time.
      def test_another_place_or_kind_is_another_one_but_a_route_makes_one_line
        assert @aggregator.add(stall, now: 0)
        refute @aggregator.add(stall(at: "b.rb:1"), now: 0)
        refute @aggregator.add(stall(kind: "blocked"), now: 0)
        refute @aggregator.add(stall, now: 0)

        assert_equal [1, 1, 2], (@aggregator.worst.map { |entry| entry[:count] }).sort
        assert @aggregator.add(stall, now: 61).end_with?("(3 more of these since the last line.)")
      end

      def test_many_routes_make_thirty_lines_a_minute
        lines = (0...50).filter_map { |number| @aggregator.add(stall(route: "GET /#{number}"), now: number) }

        assert_equal 30, lines.size
        assert @aggregator.add(stall(route: "GET /later"), now: 70)
      end

      def test_the_longest_come_first_and_the_least_are_forgotten
        150.times { |number| @aggregator.add(stall(route: "GET /#{number}", seconds: number / 10.0), now: 0) }
        worst = @aggregator.worst(3)

        assert_equal ["GET /149", "GET /148", "GET /147"], worst.map { |entry| entry[:route] }
        assert_equal 100, @aggregator.worst(1000).size
      end

      def test_of_one_route_the_longest_is_shown
        [0.1, 0.3, 0.2].each { |seconds| @aggregator.add(stall(seconds:), now: 0) }

        assert_equal [0.3, 3], @aggregator.worst.first.values_at(:seconds, :count)
      end

      def test_one_that_lasts_is_told_once_and_counted_once
        line = @aggregator.add(stall(id: "1", seconds: 5.0, lasting: true), now: 0)

        assert_includes line, "GET /a has stalled for 5.000 s so far:"
        assert_nil @aggregator.add(stall(id: "1", seconds: 90.0), now: 85)
        assert_equal [1, 90.0, 90.0], @aggregator.worst.first.values_at(:count, :seconds, :total)
      end

      # While it lasts, the time in which its thread waits for a processor is not yet known, and taken for its own.
      def test_one_that_turns_out_to_have_lasted_for_less_is_told_to_be_over
        @aggregator.add(stall(id: "1", seconds: 12.05, lasting: true), now: 0)
        @aggregator.add(stall(id: "1", seconds: 12.02), now: 1)

        assert_equal [1, 12.02, false], @aggregator.worst.first.values_at(:count, :seconds, :lasting)
      end

      def test_two_that_last_in_one_place_are_each_counted_once
        %w[1 2].each { |id| @aggregator.add(stall(id:, seconds: 5.0, lasting: true), now: 0) }
        %w[1 2].each { |id| assert_nil @aggregator.add(stall(id:, seconds: 9.0), now: 5) }

        assert_equal [2, 9.0, 18.0], @aggregator.worst.first.values_at(:count, :seconds, :total)
      end

      def test_one_that_lasts_and_is_looked_at_only_once_it_is_over_is_told_again_and_counted_once
        @aggregator.add(stall(id: "1", seconds: 5.0, lasting: true), now: 0)
        assert_nil @aggregator.add(stall(id: "1", seconds: 60.0, lasting: true), now: 55)
        assert_equal [1, 60.0, 60.0], @aggregator.worst.first.values_at(:count, :seconds, :total)
        line = @aggregator.add(stall(id: "1", seconds: 90.0, at: "a.rb:1"), now: 85)

        assert_includes line, "GET /a stalled for 90.000 s: computing at a.rb:1"
        assert_equal [[1, 90.0, 90.0]], @aggregator.worst.map { |entry| entry.values_at(:count, :seconds, :total) }
      end

      private

      def stall(**fields)
        Stall.new(id: "0", pid: 1, time: 0.0, seconds: 0.1, lasting: false, kind: "computing", method: "GET", path: "/a",
                  request_id: nil, route: "GET /a", action: nil, thread: nil, backtrace: [], at: nil, gem: nil,
                  standby: false, handed: 0, receiver: nil, relief: false, lane: nil, **fields)
      end
    end
  end
end
