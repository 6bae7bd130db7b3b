# frozen_string_literal: true

require_relative "helper"
require_relative "drivers/databases"
require_relative "mixture"

module Fairlead
  # The short form of `rake mixture`; and that its ledger finds what is wrong.
  class MixtureTest < Test
    include Databases
    needs :database, :machine

    def test_at_random_every_response_that_is_due_comes_is_right_and_comes_once_and_nothing_is_left_behind
      mixture = Mixture.new(seconds: 9, database: Databases.postgresql, clients: 10, least: 100).run

      assert_empty mixture.faults.first(10), mixture.ledger.to_s
      assert_operator mixture.ledger.counts[:answered], :>=, 100, mixture.ledger.to_s
      assert_operator mixture.ledger.kills, :>=, 1
    end

    def test_what_is_as_it_should_be_is_no_fault
      assert_empty faults(["begins 1 7", "ends 1 7"]) { |ledger| ledger.note(1, :answered, "/", process: 7) }
      assert_empty faults(["begins 1 7"]) { |ledger| ledger.note(1, :left, "/") }
      assert_empty faults(["begins 1 7"]) { |ledger| ledger.killed(7, [80, 81]) and lose(ledger, port: 81) }
      assert_empty faults([]) { |ledger| ledger.killed(7, [80]) and lose(ledger, port: 80) }
    end

    def test_what_ran_twice_is_one
      found = faults(["begins 1 7", "ends 1 7", "begins 1 8", "ends 1 8"]) { |ledger| ledger.note(1, :left, "/") }

      assert_equal ["1 ran 2 times, in 7, 8"], found
    end

    def test_an_answer_that_is_not_of_its_run_is_one
      assert_equal 1, faults(["begins 1 7", "ends 1 7"]) { |ledger| ledger.note(1, :answered, "/", process: 8) }.size
      assert_equal 1, faults(["begins 1 7"]) { |ledger| ledger.note(1, :answered, "/", process: 7) }.size
      assert_equal 1, faults([]) { |ledger| ledger.note(1, :answered, "/", process: 7) }.size
    end

    def test_what_is_lost_is_one_unless_its_connection_was_of_a_process_that_was_killed_then
      lost = /lost, but nobody was killed who had its connection/

      assert_match(lost, faults([]) { |ledger| lose(ledger, port: 80) }.join)
      assert_match(lost, faults([]) { |ledger| ledger.killed(7, [81]) and lose(ledger, port: 80) }.join, "another's")
      assert_match(lost, faults([]) { |ledger| lose(ledger, port: 80) and ledger.killed(7, [80]) }.join, "killed later")
      killed_before = faults([]) { |ledger| ledger.killed(7, [80]) and lose(ledger, port: 80, since: monotonic) }

      assert_match(lost, killed_before.join, "an earlier connection of that port")
    end

    def test_what_is_lost_by_another_one_than_ran_it_is_one_unless_its_answer_waited_before_those_of_others
      loss = lambda do |runs, **details|
        faults(runs) { |ledger| ledger.killed(8, [81]) and ledger.killed(7, [80]) and lose(ledger, port: 80, **details) }.join
      end

      assert_match(/lost by 7, but ran in 8/, loss.call(["begins 1 8"]))
      assert_match(/lost by 7, but ran in 8/, loss.call(["begins 1 8", "ends 1 8"]))
      assert_match(/lost by 7, but ran in 8/, loss.call(["begins 1 8"], followed: true))
      assert_empty loss.call(["begins 1 8", "ends 1 8"], followed: true)
    end

    def test_what_is_wrong_silent_unknown_or_too_much_is_one
      assert_match(/wrong, status 500/, faults([]) { |ledger| ledger.note(1, :wrong, "/", detail: "status 500") }.join)
      assert_match(/silent/, faults([]) { |ledger| ledger.note(1, :silent, "/") }.join)
      assert_equal ["1 has 0 outcomes"], faults([]) { nil }
      assert_equal ["two answers"], faults([]) { |ledger| ledger.complain("two answers") and ledger.note(1, :left, "/") }
    end

    def test_a_rung_that_was_not_used_is_one
      rungs = Mixture::Rungs.new
      assert_equal 5, rungs.faults("").size
      rungs.note([{ pid: 1, lane: 0, standbys: 1, handed: 2, lane_requests: 3 }, { pid: 2, lane: 1, standbys: 0, handed: 0, lane_requests: 0 }])

      assert_equal ["there were no runs in lane workers"], rungs.faults("relief workers serve")
      assert_equal 2, rungs.faults("").size
    end

    def test_what_a_worker_did_counts_though_it_has_ended
      rungs = Mixture::Rungs.new
      rungs.note([{ pid: 1, lane: 1, standbys: 1, handed: 1, lane_requests: 1 }])
      rungs.note([{ pid: 1, lane: 1, standbys: 2, handed: 2, lane_requests: 3 }])
      rungs.note([{ pid: 2, lane: 0, standbys: 4, handed: 0, lane_requests: 5 }])

      assert_equal [6, 2, 5, 3, 0], rungs.counts("").values
    end

    private

    # Of one request.
    def faults(runs)
      ledger = Mixture::Ledger.new
      ledger.next_number
      yield ledger
      ledger.faults(runs)
    end

    def lose(ledger, since: 0, **) = ledger.note(1, :lost, "/", since:, **)
  end
end
