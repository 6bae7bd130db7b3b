# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  class RespawnPolicyTest < Test
    def setup
      super
      @policy = RespawnPolicy.new(1.0)
    end

    def test_each_failure_in_a_row_doubles_the_delay_up_to_half_a_minute
      assert_equal [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0], Array.new(7) { @policy.ended(0.0, nil) }
    end

    def test_a_process_that_has_served_for_a_while_begins_a_new_row
      3.times { @policy.ended(0.0, 1.0) }

      assert_in_delta 1.0, @policy.ended(100.0, 30.0)
      assert_in_delta 101.0, @policy.not_before
    end

    def test_the_first_that_has_served_may_be_replaced_at_once
      policy = RespawnPolicy.new(1.0, first_at_once: true)

      assert_equal [0.0, 2.0], [policy.ended(0.0, 0.1), policy.ended(0.0, 0.1)]
      policy.reset

      assert_in_delta 1.0, policy.ended(0.0, nil), 0.0, "it has not served"
    end

    def test_it_counts_boots_that_fail_in_a_row_and_all_that_end
      @policy.ended(0.0, nil)
      @policy.ended(0.0, nil, weight: 4)
      @policy.ended(0.0, 1.0)

      assert_equal [5, 3], [@policy.failed_boots, @policy.restarts]
      @policy.served

      assert_equal [0, 3], [@policy.failed_boots, @policy.restarts]
    end
  end
end
