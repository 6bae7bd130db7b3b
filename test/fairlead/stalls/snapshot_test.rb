# frozen_string_literal: true

require_relative "../../helper"
require "fairlead/fairlead"

module Fairlead
  class Stall
    class SnapshotTest < Test
      FACTS = { number: 0, began: 1, seconds: 0.5, lasting: false, kind: "computing", standby: false, relief: false, handed: 0,
                sibling: -1 }.freeze
      FIBER = Struct.new(:fairlead_serving_fiber, :async_task).new
      ENV_OF_A_REQUEST = { "REQUEST_METHOD" => "GET", "PATH_INFO" => "/report" }.freeze

      # While a request computes, a thread of the app may have the lock in between.
      def test_the_place_and_whose_it_is_are_of_one_snapshot
        other = Thread.new { Thread.stop }
        other.name = "numbers"
        sleep(0.01) until other.stop?
        request = Snapshot.new(1, 300_000, 3, Thread.current, FIBER, ENV_OF_A_REQUEST)
        thread = Snapshot.new(1, 400_000, 3, other, FIBER, nil, before: request)

        stall = thread.to_stall(FACTS)

        assert_equal ["/report", nil], [stall.path, stall.thread]
        assert_match(/test_the_place_and_whose/, stall.backtrace.join)
        assert thread.of?(ENV_OF_A_REQUEST)
        stall = Snapshot.new(1, 900_000, 3, other, FIBER, nil, before: thread).to_stall(FACTS)

        assert_equal [nil, "numbers"], [stall.path, stall.thread]
      ensure
        other&.kill&.join
      end

      # The core asks whenever most of the time is of another kind.
      def test_however_often_the_core_asks_a_stall_keeps_some_only
        last = nil
        500.times { |i| last = Snapshot.new(1, i * 1000, i % 2, Thread.current, FIBER, ENV_OF_A_REQUEST, before: last) }

        assert_equal 100, last.series.size
        assert_same last, last.series.last
        assert_equal "/report", last.to_stall(FACTS).path
      end
    end
  end
end
