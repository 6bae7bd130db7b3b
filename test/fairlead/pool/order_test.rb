# frozen_string_literal: true

require_relative "helper"

module Fairlead
  # First come, first served, for threads.
  # Covers pool/place.rb, pool/places.rb, pool/wait_queue.rb, pool/waiter.rb
  class PoolOrderTest < PoolTest
    def test_waiting_threads_get_connections_in_the_order_they_came
      pool, = connections(1)
      served = Thread::Queue.new
      threads = []
      with_all_taken(pool) do |release|
        20.times do |number|
          threads << Thread.new { pool.with { served << number } }
          await_waiting(pool, number + 1)
        end
        release.call
      end
      threads.each(&:join)

      assert_equal (0...20).to_a, Array.new(20) { served.pop }
    end

    def test_when_a_group_s_worth_comes_back_at_once_exactly_the_first_group_gets_it
      pool, = connections(5)
      served = Thread::Queue.new
      go_on = Thread::Queue.new
      groups = nil
      with_all_taken(pool) do |release|
        groups = %i[first second].each_with_index.flat_map do |group, index|
          members = Array.new(5) { Thread.new { pool.with { served << group; go_on.pop } } }
          await_waiting(pool, 5 * (index + 1))
          members
        end
        5.times { release.call }
        await_waiting(pool, 5)

        assert_equal [:first] * 5, Array.new(5) { served.pop }
        assert_empty served, "the second group must wait for the first"
        5.times { go_on << true }

        assert_equal [:second] * 5, Array.new(5) { served.pop }
      end
    ensure
      go_on.close
      groups&.each(&:join)
    end

    def test_the_one_that_gives_back_and_takes_again_stands_behind_those_that_wait
      pool, = connections(1)
      served = []
      pool.checkout
      waiter = Thread.new { pool.with { served << :waiter } }
      await_waiting(pool, 1)
      pool.checkin
      pool.with { served << :giver }
      waiter.join

      assert_equal %i[waiter giver], served
    end

    # The connection is the waiter's from the moment it is given back, whether the waiter has run since or not.
    def test_nobody_can_take_what_was_handed_over_before_its_owner_has_woken
      pool, = connections(1)
      over = Thread::Queue.new
      pool.checkout
      waiter = Thread.new { pool.with { over.pop } }
      await_waiting(pool, 1)
      pool.checkin

      assert_raises(Pool::TimeoutError) { pool.checkout(timeout: 0) }
      over << :served
      assert_equal :served, waiter.value
    end

    def test_who_gives_up_leaves_the_others_in_their_order
      pool, = connections(1)
      served = Thread::Queue.new
      threads = []
      with_all_taken(pool) do |release|
        6.times do |number|
          threads << Thread.new { pool.with { served << number } }
          await_waiting(pool, number + 1)
        end
        threads[0].kill.join
        threads[3].kill.join
        await_waiting(pool, 4)
        release.call
        threads.each(&:join)
      end

      assert_equal [1, 2, 4, 5], Array.new(4) { served.pop }
      assert_whole(pool)
    end

    def test_room_for_a_new_connection_stands_in_the_same_line
      connecting = Thread::Queue.new
      go_on = Thread::Queue.new
      made = 0
      pool = Pool.new(size: 1) do
        connecting << true
        go_on.pop
        made += 1
        raise "cannot connect" if made == 1

        made
      end
      served = Thread::Queue.new
      first = Thread.new { assert_raises(RuntimeError) { pool.with { flunk "connected" } }.message }
      connecting.pop
      others = Array.new(2) do |number|
        thread = Thread.new { pool.with { |connection| served << [number, connection] } }
        await_waiting(pool, number + 1)
        thread
      end
      2.times { go_on << true }
      others.each(&:join)

      assert_equal "cannot connect", first.value
      assert_equal [[0, 2], [1, 2]], Array.new(2) { served.pop }
    end

    def test_connections_are_made_at_the_same_time
      both = Thread::Queue.new
      met = Thread::Queue.new
      pool = Pool.new(size: 2) { both << true; met.pop }
      threads = Array.new(2) { Thread.new { pool.with { |connection| connection } } }
      2.times { both.pop }
      met << :one << :another

      assert_equal %i[another one], threads.map(&:value).sort
    end
  end
end
