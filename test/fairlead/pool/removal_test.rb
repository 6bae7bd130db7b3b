# frozen_string_literal: true

require_relative "helper"

module Fairlead
  # Connections that go, and what becomes of those who wait.
  class PoolRemovalTest < PoolTest
    def test_a_discarded_connection_makes_room_for_the_oldest_waiter
      pool, made = connections(1)
      waiters = nil
      pool.with do
        waiters = Array.new(2) do |index|
          thread = Thread.new { pool.with(&:number) }
          await_waiting(pool, index + 1)
          thread
        end
        pool.discard_current_connection(&:close)
      end
      numbers = waiters.map(&:value)

      assert_equal [1, 1], numbers
      assert_equal [[:close], []], made.map(&:calls)
    end

    def test_there_are_never_more_connections_than_the_size_allows_even_while_one_is_closed
      pool, made = connections(1)
      pool.checkout
      waiter = Thread.new { pool.with(&:number) }
      await_waiting(pool, 1)
      open = nil
      pool.discard_current_connection do |connection|
        Thread.pass
        open = made.size
        connection.close
      end
      pool.checkin

      assert_equal [1, 1], [open, waiter.value]
    end

    def test_an_error_while_closing_a_discarded_connection_is_not_the_caller_s
      pool, made = connections(1)
      pool.with { pool.discard_current_connection { raise "cannot close" } }

      assert_equal 1, pool.with(&:number)
      assert_equal 2, made.size
    end

    def test_what_interrupts_the_closing_of_a_discarded_connection_is_raised_after_it
      pool, = connections(1)
      closing, gate = Thread::Queue.new, Thread::Queue.new
      user = Thread.new do
        pool.with { pool.discard_current_connection { closing << true; gate.pop } }
        :went_on
      rescue IOError => error
        error.message
      end
      closing.pop
      user.raise(IOError, "interrupted")
      gate << true

      assert_equal ["interrupted", 1], [user.value, pool.available]
    end

    def test_without_a_connection_there_is_nothing_to_discard
      pool, made = connections(1)
      pool.discard_current_connection(&:close)
      pool.with { nil }

      refute_predicate made.first, :closed?
    end

    def test_reload_replaces_idle_connections_at_once_and_others_when_they_come_back
      pool, made = connections(2)
      pool.with do
        Thread.new { pool.with { nil } }.join
        pool.reload(&:close)

        assert_equal [false, true], made.map(&:closed?)
        assert_equal 2, Thread.new { pool.with(&:number) }.value
      end

      assert_equal [true, true, false], made.map(&:closed?)
      assert_whole(pool, made)
    end

    def test_a_connection_that_was_being_made_during_a_reload_is_not_kept
      pool = nil
      closed = []
      count = 0
      pool = Pool.new(size: 1) do
        count += 1
        pool.reload { |connection| closed << connection } if count == 1
        count
      end

      assert_equal [1, 2], [pool.with(&:itself), pool.with(&:itself)]
      assert_equal [1], closed
    end

    def test_reload_goes_on_when_a_connection_cannot_be_closed_and_says_so
      pool, made = connections(3)
      with_all_taken(pool) { nil }
      error = assert_raises(RuntimeError) do
        pool.reload { |connection| connection.number.zero? ? raise("cannot close") : connection.close }
      end

      assert_equal "cannot close", error.message
      assert_equal made.size - 1, made.count(&:closed?)
      assert_equal [3, 0], [pool.available, pool.idle]
    end

    def test_shutdown_closes_idle_connections_and_those_that_come_back
      pool, made = connections(2)
      pool.with do
        Thread.new { pool.with { nil } }.join
        pool.shutdown(&:close)

        assert_equal [false, true], made.map(&:closed?)
      end

      assert_equal [true, true], made.map(&:closed?)
      assert_raises(Pool::PoolShuttingDownError) { pool.checkout }
      assert_raises(Pool::PoolShuttingDownError) { pool.reap { nil } }
    end

    def test_shutdown_sends_the_waiters_away
      pool, = connections(1)
      with_all_taken(pool) do
        waiters = Array.new(3) { Thread.new { pool.with { flunk } rescue $!.class } }
        await_waiting(pool, 3)
        pool.shutdown(&:close)

        assert_equal [Pool::PoolShuttingDownError] * 3, waiters.map(&:value)
      end
    end

    def test_shutdown_and_reload_and_reap_need_a_block
      pool, = connections(1)

      assert_raises(ArgumentError) { pool.shutdown }
      assert_raises(ArgumentError) { pool.reload }
      assert_raises(ArgumentError) { pool.reap }
      assert_raises(ArgumentError) { pool.reap(idle_seconds: "long") { nil } }
    end

    def test_reap_removes_what_has_been_idle_for_long_the_longest_first
      pool, made = connections(3)
      with_all_taken(pool) { nil }
      sleep 3
      used = monotonic
      pool.with { nil }
      pool.reap(idle_seconds: monotonic - used + 2.5, &:close)

      assert_equal 2, made.count(&:closed?)
      assert_equal [3, 1], [pool.available, pool.idle]
    end

    def test_reap_leaves_what_is_in_use
      pool, made = connections(1)
      pool.with { pool.reap(idle_seconds: 0, &:close) }

      refute_predicate made.first, :closed?
    end

    def test_a_connection_whose_thread_has_ended_goes_and_its_place_is_the_oldest_waiter_s
      pool, made = connections(1)
      Thread.new { pool.checkout }.join

      assert_equal 1, pool.with(timeout: 5, &:number)
      assert_predicate made.first, :closed?, "its state is unknown: it is not used again"
    end

    def test_who_waits_already_when_a_holder_ends_notices_it
      pool, = connections(1)
      taken = Thread::Queue.new
      over = Thread::Queue.new
      holder = Thread.new { pool.checkout; taken << true; over.pop }
      taken.pop
      waiter = Thread.new { pool.with(timeout: 30, &:number) }
      await_waiting(pool, 1)
      over << true
      holder.join
      took = duration { assert_equal 1, waiter.value }

      assert_operator took, :<, 15
    end

    def test_a_thread_that_ended_while_it_connected_leaves_room
      go_on = Thread::Queue.new
      connecting = Thread::Queue.new
      made = 0
      pool = Pool.new(size: 1) do
        made += 1
        next made unless made == 1

        connecting << true
        go_on.pop
      end
      thread = Thread.new { pool.checkout }
      connecting.pop
      thread.kill.join

      assert_equal [2, 2], [pool.with(&:itself), pool.with(&:itself)]
    end

    def test_reap_finds_connections_whose_threads_have_ended
      pool, made = connections(2)
      Thread.new { pool.checkout }.join

      assert_equal 1, pool.available
      pool.reap { |connection| connection.close }
      assert_equal [2, true], [pool.available, made.first.closed?]
    end
  end
end
