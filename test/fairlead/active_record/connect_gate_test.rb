# frozen_string_literal: true

require "active_record"
require "async"
require_relative "../../helper"

module Fairlead
  # Where callers wait while the database accepts no connections.
  class ConnectGateTest < Test
    # Of a pool.
    Pool = Struct.new(:checkout_timeout, :size, :role, :shard, :connections, :db_config, :fairlead_budget) do
      attr_accessor :idle

      def initialize(checkout_timeout) = super(checkout_timeout, 5, :writing, :default, [], Struct.new(:name).new("primary"))
      def fairlead_take_idle_connection = idle&.shift
    end
    private_constant :Pool

    # Stands for an adapter.
    class Adapter
      attr_accessor :fairlead_waiting_since
      attr_reader :closed

      def disconnect! = @closed = true
    end

    def setup
      super
      @adapter = Adapter.new
    end

    def test_a_connection_for_one_who_leaves_at_that_moment_in_another_thread_is_not_lost
      gate = ActiveRecord::ConnectGate.new(Pool.new(30))
      leaver = Thread.new { gate.enter(@adapter) { refuse } }
      eventually("it waits") { gate.wanted? }
      gate.instance_variable_get(:@inboxes).define_singleton_method(:shift) { super().tap { leaver.kill.join } }
      gate.give(adapter = Adapter.new)

      assert adapter.closed
    end

    def test_who_has_waited_in_vain_and_tries_again_does_not_wait_as_long_again
      gate = ActiveRecord::ConnectGate.new(Pool.new(0.2))
      tries = 0
      2.times do
        tries = 0
        error = assert_raises(::ActiveRecord::ConnectionNotEstablished) { gate.enter(@adapter) { (tries += 1) && refuse } }

        assert_match(/\Acould not connect to the database \(waited \d+\.\d+ seconds\): too many clients\. /, error.message)
      end

      assert_equal 1, tries
    end

    def test_who_waits_while_others_get_in_does_not_give_up
      gate = ActiveRecord::ConnectGate.new(Pool.new(4))
      Sync do |task|
        waiters = Array.new(5) { task.async { gate.enter(Adapter.new) { refuse } } }
        5.times { sleep(0.9) && gate.give(Adapter.new) }

        assert_equal [Adapter], waiters.map { |waiter| waiter.wait.class }.uniq
      end
    end

    def test_who_comes_after_another_has_waited_in_vain_waits_as_long_as_anybody
      pool = Pool.new(0.01)
      gate = ActiveRecord::ConnectGate.new(pool)
      assert_raises(::ActiveRecord::ConnectionNotEstablished) { gate.enter(@adapter) { refuse } }
      pool.checkout_timeout = 30
      tries = 0
      gate.enter(Adapter.new) { (tries += 1) < 3 && refuse }

      assert_equal 3, tries
    end

    def test_who_comes_just_after_a_connection_came_back_to_the_pool_gets_that
      pool = Pool.new(30)
      pool.idle = [idle = Adapter.new]

      assert_same idle, ActiveRecord::ConnectGate.new(pool).enter(@adapter) { refuse }
    end

    private

    def refuse = raise(::ActiveRecord::ConnectionNotEstablished, "too many clients")
  end
end
