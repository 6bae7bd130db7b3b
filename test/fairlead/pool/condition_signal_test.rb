# frozen_string_literal: true

require_relative "helper"
return unless RUBY_ENGINE == "ruby" # JRuby has no fiber scheduler, and its other tests wait for this signal as it is

require_relative "fibers_test"
require_relative "injection_test"
require_relative "interruption_test"

module Fairlead
  # The signal of Ruby 3.1, which later ones have but do not use.
  module WithConditionSignal
    USUAL, OLDER = [:QueueSignal, :ConditionSignal].map { |name| Pool.const_get(name) }

    def setup
      super
      USUAL.define_singleton_method(:new) { OLDER.new }
    end

    def teardown
      USUAL.singleton_class.remove_method(:new)
      super
    end
  end

  # The tests of fibers and of interruptions once more.
  [PoolFibersTest, PoolInjectionTest, PoolInterruptionTest].each do |tests|
    name = tests.name.delete_prefix("Fairlead::").sub("Test", "WithConditionSignalTest")
    const_set(name, Class.new(tests) { include WithConditionSignal })
  end

  # What is to be seen at that signal alone.
  class PoolConditionSignalTest < PoolTest
    include WithConditionSignal

    def test_who_waits_here_waits_for_that_signal
      pool, = connections(1)
      with_waiter(pool) { |signal| assert_instance_of OLDER, signal }
    end

    def test_whoever_hands_over_is_not_switched_though_the_signal_s_lock_is_taken
      pool, = connections(1)
      switched = false
      Sync do
        with_waiter(pool) do |signal|
          taken, given = take_for_a_moment(signal.instance_variable_get(:@mutex))
          Async { |task| task.yield; switched = true }
          given << true
          Thread.pass until given.empty?
          pool.checkin

          refute switched
          taken.join
        end
      end
    end

    private

    # Holds the only connection when the block begins; if it still does when it ends, gives it to the waiter.
    #
    # @yieldparam signal [Object] of a thread that waits.
    def with_waiter(pool)
      pool.checkout
      waiter = Thread.new { pool.with { :served } }
      await_waiting(pool, 1)
      yield pool.instance_variable_get(:@places).instance_variable_get(:@queue).oldest.instance_variable_get(:@signal)
      pool.checkin(force: true)

      assert_equal :served, waiter.value
    end

    # @return [Array(Thread, Queue)] who has the lock, until a while after it is told something.
    def take_for_a_moment(mutex)
      told = Thread::Queue.new
      thread = Thread.new do
        mutex.synchronize do
          told.pop
          1_000.times { Thread.pass }
        end
      end
      Thread.pass until mutex.locked?
      [thread, told]
    end
  end
end
