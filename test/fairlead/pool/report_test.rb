# frozen_string_literal: true

require_relative "helper"

module Fairlead
  # What the pool says of itself.
  # Covers pool/histogram.rb
  class PoolReportTest < PoolTest
    def test_a_timeout_says_how_long_how_many_wait_and_who_holds_what_since_when
      pool, = connections(2, name: "redis")
      message = nil
      with_all_taken(pool) do
        other = Thread.new { pool.with(timeout: 10) { nil } }
        await_waiting(pool, 1)
        message = assert_raises(Pool::TimeoutError) { pool.with(timeout: 0.02) { flunk } }.message
        other.kill
      end

      start = 'waited 0.02 s for a connection of the pool "redis": 2 of 2 are in use, 2 waited, held by '
      holder = /thread 0x\h+ \(fiber 0x\h+\) for [\d.e-]+ s, now at \S+helper\.rb:\d+/
      assert_equal start, message[0, start.size]
      assert_equal 2, message.scan(holder).size, message
      assert_match(/size: 2.*timeout: 0\.02/, message)
    end

    def test_a_named_thread_is_called_by_its_name
      pool, = connections(1)
      taken = Thread::Queue.new
      over = Thread::Queue.new
      holder = Thread.new do
        Thread.current.name = "mailer"
        pool.with { taken << true; over.pop }
      end
      taken.pop

      error = assert_raises(Pool::TimeoutError) { pool.checkout(timeout: 0) }
      assert_match(/held by thread "mailer"/, error.message)
    ensure
      over.close
      holder.join
    end

    def test_the_deadline_holds
      pool, = connections(1)
      with_all_taken(pool) do
        took = duration { assert_raises(Pool::TimeoutError) { pool.checkout(timeout: 0.1) } }
        assert_includes 0.1..10, took
        took = duration { assert_raises(Pool::TimeoutError) { pool.checkout(timeout: -1) } }
        assert_operator took, :<, 10
      end
    end

    def test_nil_waits_for_ever
      pool, = connections(1, timeout: nil)
      pool.checkout
      waiter = Thread.new { pool.with { :served } }
      await_waiting(pool, 1)
      pool.checkin

      assert_equal :served, waiter.value
    end

    def test_a_full_line_is_another_error_than_a_timeout_and_comes_at_once
      pool, = connections(1, max_waiting: 1, name: "redis")
      with_all_taken(pool) do
        waiter = Thread.new { pool.with(timeout: 20) { nil } }
        await_waiting(pool, 1)
        error = nil
        took = duration { error = assert_raises(Pool::FullError) { pool.with { flunk } } }

        refute_kind_of Pool::TimeoutError, error
        assert_operator took, :<, 10
        assert_equal 'the pool "redis"', error.message[/the pool "redis"/]
        assert_match(/: 1 wait already, .*max_waiting.*; 1 of 1 are in use\z/, error.message)
        waiter.kill.join
      end
      assert_whole(pool)
    end

    def test_stat_counts_what_is_and_what_has_been
      pool, = connections(2)
      Thread.new { pool.with { sleep 0.01 } }.join
      stat = nil
      with_all_taken(pool) do |release|
        waiter = Thread.new { pool.with { nil } }
        await_waiting(pool, 1)
        sleep 0.01
        stat = pool.stat
        release.call
        waiter.join
      end

      assert_equal [2, 2, 0, 1], stat.values_at(:size, :in_use, :idle, :waiting)
      assert_operator stat[:oldest_wait], :>=, 0.01
      assert_equal [1, 0], [stat[:holds][:count], stat[:waits][:count]]
      assert_operator stat[:holds][:max], :>=, 0.01
      assert_equal 2, stat[:holders].size
      assert_operator stat[:holders][0][:seconds], :>=, stat[:holders][1][:seconds]

      stat = pool.stat
      assert_equal [0, 2, 0], stat.values_at(:in_use, :idle, :waiting)
      assert_equal [4, 1], [stat[:holds][:count], stat[:waits][:count]]
      assert_equal 4, stat[:holds][:buckets].sum(&:last)
      stat[:waits][:buckets].each_key { |bound| assert_operator bound, :>=, stat[:waits][:max] }
    end

    def test_stat_shows_where_the_holders_are_when_asked
      pool, = connections(1)
      pool.with do
        refute pool.stat[:holders].first.key?(:backtrace)
        backtrace = pool.stat(backtraces: true)[:holders].first[:backtrace]
        assert(backtrace.any? { |line| line.include?(__method__.to_s) }, backtrace.join("\n"))
      end
    end

    def test_stat_counts_those_who_waited_in_vain
      pool, = connections(1)
      with_all_taken(pool) { 2.times { pool.checkout(timeout: 0, exception: false) } }

      assert_equal 2, pool.stat[:timeouts]
    end

    def test_a_signal_handler_that_interrupts_the_pool_gets_an_error_and_no_deadlock
      pool, = connections(1)
      pool.with { nil }
      error = lock(pool).synchronize { assert_raises(ThreadError) { pool.with { flunk } } }

      assert_match(/signal handler/, error.message)
    end
  end
end
