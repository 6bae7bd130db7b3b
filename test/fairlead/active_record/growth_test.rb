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
      @idle = []
      @size = @largest = 1
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

    def test_a_process_that_is_always_at_work_goes_back_to_what_it_had_when_more_connections_do_not_come_back_more_often
      grow_for(6.0, busy: 1.0) { 6_000 }

      assert_includes FREELY..(FREELY * 1.25), @size
      assert_operator @largest, :>, FREELY * 1.5
    end

    def test_one_bad_look_of_a_process_at_work_does_not_stop_it
      bad_until = nil
      grow_for(6.0, busy: 1.0) do |size|
        bad_until ||= @now + 1.3 if size > FREELY
        (bad_until && @now < bad_until ? 4_500 : 5_000) + (10 * size)
      end

      assert_equal 190, @size
    end

    def test_a_process_that_is_always_at_work_grows_as_long_as_that_helps_it_a_little
      grow_for(12.0, busy: 1.0) { |size| 5_000 + (10 * size) }

      assert_equal 190, @size
    end

    def test_it_keeps_hardly_more_than_what_keeps_the_process_at_work
      # 90 queries of 10 ms at a time are as much as it can do.
      grow_for(7.0, busy: ->(size) { size / 90.0 }) { |size| [size, 90].min / 0.01 }

      assert_includes 84..150, @size
      assert_operator @largest, :>, 180
    end

    def test_it_tries_the_more_seldom_what_may_not_help_the_longer_opening_takes
      first = [0.001, 0.01].map do |cost|
        open_at_first(cost)
        (1..400).find { look(64, 400, 0.0).positive? } * 0.3
      end

      # 64 of them at once, or in a fiftieth of the time.
      assert_in_delta 1.5, first[0], 0.3
      assert_in_delta 32, first[1], 3.5
    end

    def test_what_is_open_at_the_next_look_took_no_longer
      FREELY.times { |size| @growth.step(size + 1, 0, 1, @now += 0.001) { [0.0, 0.0] } }

      assert_in_delta 1.5, (1..400).find { look(64, 400, 0.0).positive? } * 0.3, 0.3
    end

    def test_where_as_many_more_as_the_first_ones_are_enough_for_all_a_busy_process_lets_them_in_soon
      opened = [[63, 2], [65, 4]].map do |wanted, looks|
        open_at_first(0.05)
        let_in(64, wanted, Array.new(looks) { look(64, 400, 0.0, wanted:) }.sum, seconds: 0.05, together: 1)
      end

      assert_equal [63, 0], opened
    end

    def test_at_work_it_opens_as_many_at_a_time_as_take_little_time
      open_at_first(0.0095)

      first = Array.new(2) { look(64, 400, 0.0, wanted: 40) }.sum

      assert_equal 3, first
      assert_equal 40, let_in(64, 40, first, seconds: 0.0095, together: 3)
    end

    def test_none_is_opened_for_twice_as_long_as_the_last_one_took
      3.times { look(64, 400, 0.0, wanted: 20) }
      opened = Array.new(20) { |tick| @growth.step(64, tick < 5 ? 1 : 0, 20, @now += 0.01) { [0.0, 0.0] } }

      assert_equal [17], opened.each_index.reject { |tick| opened[tick].zero? }
    end

    def test_what_it_had_opened_stays_while_the_process_is_at_work
      # More connections come back less often; while it has time, that is due to the database.
      surplus = [0.0, 0.6].map do |idle|
        @growth = ActiveRecord::Growth.new
        2.times { look(64, 640, 0.6) }
        3.times { look(96, 600, idle) }
        @growth.surplus
      end

      assert_equal [0, 32], surplus
    end

    def test_what_a_process_does_mostly_itself_is_judged_by_its_own_work
      # A sibling takes some of the CPU; or each connection costs more.
      surplus = [[600, 0.2], [600, 0.28]].map do |returned, ran|
        grown_at_work(128)
        20.times { look(128, returned, 0.0, ran:) }
        @growth.surplus
      end

      assert_equal [0, 64], surplus
    end

    def test_of_hardly_more_connections_nothing_is_told
      surplus = [70, 80].map do |size|
        grown_at_work(size)
        12.times { look(size, 500, 0.0) }
        @growth.surplus
      end

      assert_equal [0, 16], surplus
    end

    def test_it_is_compared_with_what_was_just_before
      # There was no room, and queries take longer by now.
      grown_at_work(128)
      12.times { look(64, 400, 0.0) }
      20.times { look(128, 450, 0.0) }

      assert_equal 0, @growth.surplus
    end

    def test_small_losses_do_not_add_up
      # Each takes a tenth more work than before, or a hundredth.
      surplus = [0.22, 0.202].map do |ran|
        grown_at_work(128)
        12.times { look(128, 640, 0.0, ran:) }
        30.times { look(256, 640, 0.0, ran: ran * ran / 0.2) }
        @growth.surplus
      end

      assert_equal [192, 0], surplus
    end

    private

    # From the first ones, which came back 640 times in 0.3 s of which the process was at work for 0.2.
    def grown_at_work(size)
      open_at_first(0.001)
      200.times { return if look(64, 640, 0.0, wanted: size - 64, ran: 0.2).positive? }
    end

    # The first ones, one after the other.
    def open_at_first(cost)
      @growth = ActiveRecord::Growth.new
      FREELY.times { |size| 2.times { |tick| @growth.step(size + 1, 1 - tick, 1, @now += cost * tick) { [0.0, 0.0] } } }
    end

    # One after the other takes so long to connect.
    def let_in(size, wanted, opened, seconds:, together:)
      connecting = opened
      size += opened
      400.times do
        count = @growth.step(size, connecting, wanted - opened, @now += seconds) { [0.0, 0.0] }
        connecting = [connecting - 1, 0].max + count
        size += count
        opened += count
        assert_operator connecting, :<=, together
      end
      opened
    end

    # @param ran [Float] seconds for which the process itself was at work.
    def look(size, returned, idle, wanted: 500, ran: 0.0)
      returned.times { @growth.returned }
      @growth.step(size, 0, wanted, @now += 0.3) { [idle, ran] }
    end

    # A pool of at most 190, for which 500 wait; each takes 2 ms to connect.
    #
    # @param busy [Float, #call] for what share of the time the process is at work.
    # @yieldreturn [Numeric] how many connections come back in a second.
    def grow_for(seconds, busy: 0.0)
      limit = @now + seconds
      connecting = 0
      while @now < limit
        @now += 0.002
        @idle << (1 - (busy.respond_to?(:call) ? busy.call(@size).clamp(0, 1) : busy))
        returned = (yield(@size) * 0.002).round
        returned.times { @growth.returned }
        [@growth.surplus, returned].min.times { @growth.closed && (@size -= 1) }
        connecting = [@growth.step(@size, connecting, 500, @now) { [idleness, 0.0] }, 190 - @size].min
        @size += connecting
        @largest = [@largest, @size].max
      end
    end

    # On average, since it was asked for last.
    def idleness = @idle.sum.fdiv(@idle.size).tap { @idle.clear }
  end
end
