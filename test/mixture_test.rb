# frozen_string_literal: true

require_relative "helper"
require_relative "drivers/databases"
require_relative "mixture"

module Fairlead
  # The short form of `rake mixture`; and that its ledger finds what is wrong.
  class MixtureTest < Test
    include Databases

    def test_at_random_every_response_that_is_due_comes_is_right_and_comes_once_and_nothing_is_left_behind
      skip_without_databases
      mixture = Mixture.new(seconds: 9, database: Databases.postgresql, clients: 10).run

      assert_empty mixture.faults.first(10), mixture.ledger.to_s
      assert_operator mixture.ledger.counts[:answered], :>, 100, mixture.ledger.to_s
      assert_operator mixture.ledger.kills, :>=, 1
    end

    def test_what_is_as_it_should_be_is_no_fault
      assert_empty faults(["begins 1 7", "ends 1 7"]) { |ledger| ledger.note(1, :answered, "/", process: 7) }
      assert_empty faults(["begins 1 7"]) { |ledger| ledger.note(1, :left, "/") }
      assert_empty faults(["begins 1 7"]) { |ledger| ledger.killed(7) and ledger.note(1, :lost, "/") }
      assert_empty faults([]) { |ledger| ledger.killed(7) and ledger.note(1, :lost, "/") }
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

    def test_what_is_lost_while_nobody_was_killed_or_by_one_that_lives_is_one
      assert_match(/lost though nobody was killed/, faults([]) { |ledger| ledger.note(1, :lost, "/") }.join)
      lived = faults(["begins 1 8"]) { |ledger| ledger.killed(7) and ledger.note(1, :lost, "/") }

      assert_match(/lost, but ran in 8, which lives/, lived.join)
    end

    def test_what_is_wrong_silent_unknown_or_too_much_is_one
      assert_match(/wrong, status 500/, faults([]) { |ledger| ledger.note(1, :wrong, "/", detail: "status 500") }.join)
      assert_match(/silent/, faults([]) { |ledger| ledger.note(1, :silent, "/") }.join)
      assert_equal ["1 has 0 outcomes"], faults([]) { nil }
      assert_equal ["two answers"], faults([]) { |ledger| ledger.complain("two answers") and ledger.note(1, :left, "/") }
    end

    private

    # Of one request.
    def faults(runs)
      ledger = Mixture::Ledger.new
      ledger.next_number
      yield ledger
      ledger.faults(runs)
    end
  end
end
