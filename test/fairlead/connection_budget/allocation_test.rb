# frozen_string_literal: true

require_relative "../../helper"
require "fairlead/connection_budget/connection_budget"

module Fairlead
  # Which worker gets how many connections of the budget.
  class AllocationTest < Test
    def test_what_is_free_goes_round_in_the_order_in_which_they_came
      assert_equal({ 1 => 1, 0 => 1 }, grants([demand(0, waiting: 5, since: 20), demand(1, waiting: 5, since: 10)], 10, 2))
      assert_equal({ 1 => 1 }, grants([demand(0, waiting: 5, since: 20), demand(1, waiting: 5, since: 10)], 10, 1))
    end

    def test_nobody_gets_more_than_wait
      assert_equal({ 0 => 2, 1 => 1 }, grants([demand(0, waiting: 2), demand(1, waiting: 1), demand(2)], 90, 90))
    end

    def test_nobody_gets_more_than_it_opens_now
      assert_equal({ 0 => 8 }, grants([demand(0, waiting: 60)], 90, 90))
      assert_equal({ 0 => 3 }, grants([demand(0, held: 5, connecting: 5, waiting: 60)], 90, 85))
      assert_equal({ 0 => 20 }, grants([demand(0, held: 20, waiting: 60)], 90, 70))
    end

    def test_who_has_less_than_its_share_goes_first
      # 20 for 80 that could use one: a quarter each.
      demands = [demand(0, held: 18, waiting: 22, since: 1), demand(1, held: 1, waiting: 39, since: 2)]

      assert_equal({ 1 => 1 }, grants(demands, 20, 1))
    end

    def test_who_has_more_than_its_share_is_asked_for_what_others_lack
      demands = [demand(0, held: 20, waiting: 80), demand(1, waiting: 100)]

      assert_equal({ 0 => 4 }, recalls(demands, 20))
    end

    def test_nothing_is_asked_twice_nor_what_is_being_closed_already
      demands = [demand(0, held: 20, waiting: 80, owed: 2), demand(1, waiting: 100)]

      assert_equal({ 0 => 1 }, recalls(demands, 20, closing: 1))
    end

    def test_no_more_is_asked_for_one_that_has_enough_to_open
      demands = [demand(0, held: 17, waiting: 80), demand(1, held: 3, connecting: 3, waiting: 100)]

      assert_equal({ 0 => 1 }, recalls(demands, 20))
    end

    def test_one_that_waits_gets_one_even_if_its_share_is_less
      demands = [demand(0, held: 20), demand(1, waiting: 1)]

      assert_equal({ 0 => 1 }, recalls(demands, 20))
    end

    def test_with_fewer_connections_than_workers_one_goes_to_the_worker_whose_requests_have_waited_longest
      assert_equal({ 0 => 1 }, recalls([demand(0, held: 1, waiting: 5, since: 20), demand(1, waiting: 1, since: 10)], 1))
      assert_empty recalls([demand(0, held: 1, waiting: 5, since: 10), demand(1, waiting: 1, since: 20)], 1)
      assert_empty recalls([demand(0, held: 1, waiting: 5, since: 20, owed: 1), demand(1, waiting: 1, since: 10)], 1)
    end

    def test_a_fair_division_stays
      demands = Array.new(4) { |slot| demand(slot, held: 5, waiting: 95 + slot) }

      assert_empty recalls(demands, 20)
    end

    def test_who_has_nearly_what_is_due_to_it_makes_do
      demands = ->(lacking) { [demand(0, held: 45 + lacking, waiting: 55), demand(1, held: 45 - lacking, waiting: 55)] }

      assert_empty recalls(demands.call(8), 90)
      assert_equal({ 0 => 4 }, recalls(demands.call(20), 90))
    end

    private

    def demand(slot, held: 0, waiting: 0, since: 0, connecting: 0, owed: 0)
      ConnectionBudget::Allocation::Demand.new(slot:, held:, waiting:, since:, connecting:, owed:)
    end

    def grants(...) = ConnectionBudget::Allocation.grants(...)

    def recalls(demands, limit, closing: 0) = ConnectionBudget::Allocation.recalls(demands, limit, closing)
  end
end
