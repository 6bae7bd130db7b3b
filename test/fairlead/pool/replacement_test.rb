# frozen_string_literal: true

require_relative "helper"

module Fairlead
  # What users of connection_pool expect.
  # Covers pool.rb, pool/errors.rb, pool/version.rb, pool/wrapper.rb
  class PoolReplacementTest < PoolTest
    class Recorder
      attr_reader :calls

      def initialize = @calls = []
      def record(*arguments, **options) = @calls.push([arguments, options, block_given? && yield]).size
      def respond_to_missing?(name, *) = name == :guess
    end

    def test_the_block_s_value_is_returned
      pool, = connections(1)

      assert_equal 0, pool.with(&:number)
      assert_equal 0, pool.then(&:number)
    end

    def test_a_block_that_makes_connections_is_required
      assert_raises(ArgumentError) { Pool.new(size: 1) }
      assert_match(/size is -1/, assert_raises(ArgumentError) { Pool.new(size: -1) { nil } }.message)
      assert_raises(ArgumentError) { Pool.new(timeout: "soon") { nil } }
    end

    def test_a_pool_without_places_times_out
      pool = Pool.new(size: 0, timeout: 0.01) { flunk }

      assert_match(/0 of 0 are in use/, assert_raises(Pool::TimeoutError) { pool.checkout }.message)
      assert_nil pool.with(exception: false, &:itself)
      assert_equal [0, 0, 0], [pool.size, pool.available, pool.waiting]
    end

    def test_with_takes_what_checkout_returns
      pool, = connections(1)
      pool.define_singleton_method(:checkout) { |prefix: nil, **options| "#{prefix}#{super(**options).number}" }

      assert_equal "a0", pool.with(prefix: "a", timeout: 1, &:itself)
      assert_equal(%w[a0 b0], pool.with(prefix: "a") { |outer| [outer, pool.with(prefix: "b", &:itself)] })
      assert_whole(pool)
    end

    def test_a_checkout_that_fails_after_it_has_taken_a_connection_gives_it_back
      pool, = connections(1)
      refuse = true
      pool.define_singleton_method(:checkout) { |**options| super(**options).tap { raise "not this one" if refuse } }

      assert_raises(RuntimeError) { pool.with { flunk } }
      refuse = false
      assert_whole(pool)
    end

    def test_options_that_it_does_not_know_are_ignored
      pool, = connections(1)

      assert_equal 0, pool.with(host: "a", &:number)
      assert_equal 0, pool.checkout(host: "a").number
    end

    def test_it_has_a_version
      assert_match(/\A\d+\.\d+\.\d+/, Pool::VERSION)
    end

    # Also where they wait, time out, and end it.
    def test_a_ractor_may_have_pools_of_its_own
      skip "only CRuby has Ractors" unless RUBY_ENGINE == "ruby"
      lib = File.expand_path("../../../lib", __dir__)
      output = IO.popen([RbConfig.ruby, "-W0", "-I", lib, "-rfairlead-pool", "-e", <<~RUBY], err: %i[child out], &:read)
        result = Ractor.new do
          pool = Fairlead::Pool.new(size: 1, timeout: 0.01, name: "a") { "connection" }
          waited = pool.with { Thread.new { pool.with(exception: false) { |none| none.inspect } }.value }
          error = pool.with { Thread.new { pool.checkout rescue $!.class.name }.value }
          handed = Thread::Queue.new
          waiter = pool.with { Thread.new { pool.with(timeout: 5) { |one| one } }.tap { sleep 0.001 until pool.waiting == 1 } }
          stat = pool.stat.values_at(:size, :timeouts)
          pool.reap(idle_seconds: 0) { nil }
          pool.reload { nil }
          closed = []
          waiter.join
          pool.with { nil }
          pool.shutdown { |one| closed << one }
          [waited, error, waiter.value, stat, closed]
        end
        p(result.respond_to?(:value) ? result.value : result.take)
      RUBY

      assert_equal %(["nil", "Fairlead::Pool::TimeoutError", "connection", [1, 2], ["connection"]]\n), output
    end

    def test_five_connections_and_five_seconds_are_the_default
      pool = Pool.new { Object.new }

      assert_equal [5, 5, 0], [pool.size, pool.available, pool.idle]
    end

    def test_a_connection_is_made_only_when_none_is_idle
      pool, made = connections(5)
      10.times { pool.with { nil } }

      assert_equal 1, made.size
      assert_equal [5, 1], [pool.available, pool.idle]
    end

    def test_the_connection_used_last_is_used_first
      pool, = connections(2)
      inner = nil
      outer = pool.with do |connection|
        inner = Thread.new { pool.with(&:itself) }.value
        connection
      end

      refute_same inner, outer
      assert_same outer, pool.with(&:itself)
    end

    def test_available_and_idle_follow_what_is_out
      pool, = connections(3)
      pool.with do
        assert_equal [2, 0], [pool.available, pool.idle]
      end
      assert_equal [3, 1], [pool.available, pool.idle]
    end

    def test_a_nested_call_gets_the_same_connection
      pool, = connections(1)

      pool.with do |outer|
        pool.with(timeout: 0) { |inner| assert_same outer, inner }
        assert_equal 0, pool.available, "the outer call still holds it"
      end
      assert_equal 1, pool.available
    end

    def test_what_was_checked_out_twice_must_be_checked_in_twice
      pool, = connections(1)
      first = pool.checkout

      assert_same first, pool.checkout
      pool.checkin
      assert_equal 0, pool.available
      pool.checkin
      assert_equal 1, pool.available
      assert_match(/no connections are checked out/, assert_raises(Pool::Error) { pool.checkin }.message)
    end

    def test_force_checks_in_at_once_and_never_complains
      pool, = connections(1)
      3.times { pool.checkout }

      assert_nil pool.checkin(force: true)
      assert_equal 1, pool.available
      assert_nil pool.checkin(force: true)
    end

    def test_only_the_thread_that_has_it_can_check_it_in
      pool, = connections(1)
      pool.checkout
      Thread.new { assert_raises(Pool::Error) { pool.checkin } }.join

      assert_equal 0, pool.available
    end

    def test_an_exception_gives_the_connection_back
      pool, = connections(1)

      assert_raises(RuntimeError) { pool.with { raise "of the app" } }
      assert_equal [:out], catch(:it) { pool.with { throw :it, [:out] } }
      assert_whole(pool)
    end

    def test_a_connection_that_cannot_be_made_leaves_its_place_free
      works = false
      pool = Pool.new(size: 1) { works ? :connection : raise("cannot connect") }

      2.times { assert_raises(RuntimeError) { pool.with { flunk } } }
      works = true

      assert_equal :connection, pool.with(&:itself)
    end

    def test_false_instead_of_an_exception_yields_nothing
      pool, = connections(1)
      with_all_taken(pool) do
        assert_nil pool.checkout(timeout: 0, exception: false)
        assert_equal [nil], pool.with(timeout: 0, exception: false) { |connection| [connection] }
        assert_raises(IOError) { pool.checkout(timeout: 0, exception: IOError) }
      end
      assert_whole(pool)
    end

    def test_a_call_can_wait_longer_than_the_pool_says
      pool, = connections(1, timeout: 0)
      pool.checkout
      waiter = Thread.new { pool.with(timeout: 10) { :served } }
      await_waiting(pool, 1)
      pool.checkin

      assert_equal :served, waiter.value
    end

    def test_the_wrapper_passes_calls_on
      recorder = Recorder.new
      wrapper = Pool.wrap(size: 1, timeout: 1) { recorder }

      assert_equal 1, wrapper.record(1, two: 2) { 3 }
      assert_equal [[[1], { two: 2 }, 3]], recorder.calls
      assert_same recorder, wrapper.with(&:itself)
      assert_equal [1, 1], [wrapper.pool_size, wrapper.pool_available]
      assert_kind_of Pool, wrapper.wrapped_pool
    end

    def test_the_wrapper_responds_to_what_the_connection_does
      wrapper = Pool::Wrapper.new(pool: Pool.new(size: 1) { Recorder.new })

      %i[with pool_shutdown wrapped_pool record guess].each { |name| assert wrapper.respond_to?(name), name }
      refute wrapper.respond_to?(:nothing)
    end

    def test_the_wrapper_s_pool_can_be_shut_down
      pool, made = connections(1)
      wrapper = Pool::Wrapper.new(pool: pool)
      wrapper.number
      wrapper.pool_shutdown(&:close)

      assert_predicate made.first, :closed?
      assert_raises(Pool::PoolShuttingDownError) { wrapper.number }
    end

    def test_its_errors_are_those_that_callers_rescue
      assert_operator Pool::TimeoutError, :<, Timeout::Error
      assert_operator Pool::PoolShuttingDownError, :<, Pool::Error
      assert_operator Pool::FullError, :<, Pool::Error
      assert_operator Pool::Error, :<, RuntimeError
    end
  end
end
