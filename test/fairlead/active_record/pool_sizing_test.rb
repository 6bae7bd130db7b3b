# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # How many connections a pool opens while requests wait for one.
  class PoolSizingTest < Test
    FREELY = ActiveRecord::PoolSizing::FREELY
    # What process and machine have been since they were last asked.
    Idle = Struct.new(:share) { def since_last_call(_now) = share }
    private_constant :FREELY, :Idle

    def setup
      super
      @idle = Idle.new(0.5)
      @sizing = ActiveRecord::PoolSizing.new(@idle)
      @now = 100.0
    end

    def test_the_first_ones_are_opened_as_they_are_needed_also_at_full_load
      @idle.share = 0.0

      assert_equal 3, @sizing.step(1, 0, 3, @now)
      assert_equal 8, @sizing.step(4, 0, 500, @now)
      assert_equal FREELY, grow(1, 500, 1.0)
    end

    def test_only_so_many_connect_at_the_same_time
      assert_equal 0, @sizing.step(9, 8, 100, @now)
      assert_equal 12, @sizing.step(20, 4, 100, @now)
      assert_equal 0, @sizing.step(80, 1, 100, @now)
    end

    def test_beyond_these_a_half_more_at_a_time
      size = FREELY
      sizes = [0.2, 0.2, 0.25, 0.25].map { |seconds| size = grow(size, 500, seconds) }

      assert_equal [64, 96, 144, 216], sizes
    end

    def test_no_more_than_requests_wait
      assert_equal FREELY + 7, grow(FREELY, 7, 0.6)
    end

    def test_none_where_process_and_machine_have_their_hands_full
      @idle.share = 0.2

      assert_equal FREELY, grow(FREELY, 500, 3.0)
    end

    # What was idle then was idle since nobody waited.
    def test_what_was_while_nobody_waited_does_not_count
      grow(FREELY, 500, 0.2)
      @now += 10

      assert_equal FREELY, grow(FREELY, 500, 0.2)
    end

    private

    # The lookout looks every few milliseconds.
    #
    # @return [Integer] connections after so many seconds.
    def grow(size, most, seconds)
      finish = @now + seconds
      wanted = most
      while @now < finish
        more = @sizing.step(size, 0, wanted, @now)
        size += more
        wanted -= more
        @now += 0.002
      end
      size
    end
  end
end
