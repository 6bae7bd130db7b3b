# frozen_string_literal: true

require_relative "../../helper"
require "fairlead/connection_budget/allocator"

module Fairlead
  # Who gets how many connections of the budget.
  class SharesTest < Test
    def test_what_is_free_goes_round_in_the_order_in_which_they_came
      assert_equal({ 1 => 1, 0 => 1 }, grants([claim(0, waiting: 5, since: 20), claim(1, waiting: 5, since: 10)], 10, 2))
      assert_equal({ 1 => 1 }, grants([claim(0, waiting: 5, since: 20), claim(1, waiting: 5, since: 10)], 10, 1))
    end

    def test_nobody_gets_more_than_wait
      assert_equal({ 0 => 2, 1 => 1 }, grants([claim(0, waiting: 2), claim(1, waiting: 1), claim(2)], 90, 90))
    end

    def test_nobody_gets_more_than_it_opens_now
      assert_equal({ 0 => 8 }, grants([claim(0, waiting: 60)], 90, 90))
      assert_equal({ 0 => 3 }, grants([claim(0, held: 5, connecting: 5, waiting: 60)], 90, 85))
      assert_equal({ 0 => 20 }, grants([claim(0, held: 20, waiting: 60)], 90, 70))
    end

    def test_who_has_less_than_its_share_goes_first
      # 20 for 80 that could use one: a quarter each.
      claims = [claim(0, held: 18, waiting: 22, since: 1), claim(1, held: 1, waiting: 39, since: 2)]

      assert_equal({ 1 => 1 }, grants(claims, 20, 1))
    end

    def test_who_has_more_than_its_share_is_asked_for_what_others_lack
      claims = [claim(0, held: 20, waiting: 80), claim(1, waiting: 100)]

      assert_equal({ 0 => 4 }, recalls(claims, 20))
    end

    def test_nothing_is_asked_twice_nor_what_is_being_closed_already
      claims = [claim(0, held: 20, waiting: 80, owed: 2), claim(1, waiting: 100)]

      assert_equal({ 0 => 1 }, recalls(claims, 20, coming: 1))
    end

    def test_no_more_is_asked_for_one_that_has_enough_to_open
      claims = [claim(0, held: 17, waiting: 80), claim(1, held: 3, connecting: 3, waiting: 100)]

      assert_equal({ 0 => 1 }, recalls(claims, 20))
    end

    def test_one_that_waits_gets_one_even_if_its_share_is_less
      claims = [claim(0, held: 20), claim(1, waiting: 1)]

      assert_equal({ 0 => 1 }, recalls(claims, 20))
    end

    def test_with_fewer_connections_than_workers_one_goes_to_the_worker_whose_requests_have_waited_longest
      assert_equal({ 0 => 1 }, recalls([claim(0, held: 1, waiting: 5, since: 20), claim(1, waiting: 1, since: 10)], 1))
      assert_empty recalls([claim(0, held: 1, waiting: 5, since: 10), claim(1, waiting: 1, since: 20)], 1)
      assert_empty recalls([claim(0, held: 1, waiting: 5, since: 20, owed: 1), claim(1, waiting: 1, since: 10)], 1)
    end

    def test_a_fair_division_stays
      claims = Array.new(4) { |slot| claim(slot, held: 5, waiting: 95 + slot) }

      assert_empty recalls(claims, 20)
    end

    def test_who_has_nearly_what_is_due_to_it_makes_do
      claims = ->(lacking) { [claim(0, held: 45 + lacking, waiting: 55), claim(1, held: 45 - lacking, waiting: 55)] }

      assert_empty recalls(claims.call(8), 90)
      assert_equal({ 0 => 4 }, recalls(claims.call(20), 90))
    end

    private

    def claim(slot, held: 0, waiting: 0, since: 0, connecting: 0, owed: 0)
      Budget::Shares::Claim.new(slot:, held:, waiting:, since:, connecting:, owed:)
    end

    def grants(...) = Budget::Shares.grants(...)

    def recalls(claims, limit, coming: 0) = Budget::Shares.recalls(claims, limit, coming)
  end
end
