# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # How many connections a pool opens while requests wait for one.
  class GrowthTest < Test
    FREELY = ActiveRecord::Growth::FREELY

    def setup
      super
      @growth = ActiveRecord::Growth.new
      @now = 100.0
      @size = 1
    end

    def test_the_first_ones_are_opened_as_they_are_needed
      assert_equal 3, @growth.step(1, 0, 3, @now)
      assert_operator @growth.step(4, 0, 500, @now), :>=, 4
    end

    def test_only_so_many_connect_at_the_same_time
      assert_equal 0, @growth.step(9, 8, 100, @now)
      assert_equal 12, @growth.step(20, 4, 100, @now)
    end

    def test_queries_of_one_second_get_as_many_as_they_need
      # None comes back meanwhile.
      grow_for(1.0) { 0 }

      assert_equal 190, @size
    end

    def test_it_stops_and_goes_back_when_more_connections_do_not_come_back_more_often
      # The database does 5,000 of these a second, whoever asks.
      grow_for(2.0) { 5_000 }

      assert_includes FREELY..(FREELY * 1.5), @size
    end

    def test_it_goes_on_as_long_as_more_connections_come_back_more_often
      # 10 ms each, up to 10,000 a second.
      grow_for(2.0) { |size| [size / 0.01, 10_000].min }

      assert_includes 80..160, @size
    end

    def test_one_bad_moment_does_not_stop_it
      bad_until = nil
      grow_for(1.0) do |size|
        bad_until ||= @now + 0.12 if size > FREELY
        bad_until && @now < bad_until ? 100 * FREELY : size / 0.01
      end

      assert_equal 190, @size
    end

    private

    # A pool of at most 190, for which 500 wait.
    def grow_for(seconds)
      limit = @now + seconds
      while @now < limit
        @now += 0.002
        returned = (yield(@size) * 0.002).round
        returned.times { @growth.returned }
        [@growth.surplus, returned].min.times { @growth.closed && (@size -= 1) }
        @size = [@size + @growth.step(@size, 0, 500, @now), 190].min
      end
    end
  end
end
