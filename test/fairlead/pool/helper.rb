# frozen_string_literal: true

# The pool's tests load the pool alone; they run on every Ruby that it supports.
$LOAD_PATH.unshift File.expand_path("../../../lib", __dir__)

require "minitest/autorun"
require "fairlead/pool"
require_relative "../../legible"
require_relative "../../needs"

module Fairlead
  # The base of the pool's tests.
  class PoolTest < Minitest::Test
    extend Needs

    # Something that can be held by one only, and knows what became of it.
    class Connection
      attr_reader :number, :calls

      def initialize(number = nil)
        @number = number
        @calls = []
        @holder = nil
      end

      # Runs the block; raises if somebody else is in here.
      def use
        raise "used by two at once" if @holder
        raise "used though closed" if closed?

        @holder = Fiber.current
        begin
          yield self
        ensure
          @holder = nil
        end
      end

      def close = @calls << :close
      def closed? = @calls.include?(:close)
    end

    def connections(size, **options)
      made = []
      lock = Mutex.new # for JRuby, where two may connect in the same moment
      pool = Pool.new(size: size, **options) do
        lock.synchronize { Connection.new(made.size).tap { |connection| made << connection } }
      end
      [pool, made]
    end

    # Holds all of the pool's connections until the block ends.
    #
    # @yieldparam release [Proc] gives one of them back.
    def with_all_taken(pool)
      orders = Array.new(pool.size) { Thread::Queue.new }
      taken = Thread::Queue.new
      threads = orders.map { |order| Thread.new { pool.with { |connection| taken << connection; order.pop } } }
      pool.size.times { taken.pop }
      left = orders.dup
      yield(proc { left.shift << true })
    ensure
      orders.each(&:close)
      threads.each(&:join)
    end

    # What keeps the pool's state in one piece.
    def lock(pool) = pool.instance_variable_get(:@places).instance_variable_get(:@lock)

    def await_waiting(pool, count)
      eventually("#{count} wait") { pool.waiting == count }
    end

    def eventually(what, within: 60)
      deadline = monotonic + within
      until yield
        flunk "#{what}: not within #{within} s" if monotonic > deadline
        Thread.pass
        sleep 0.001
      end
      pass
    end

    def duration
      started = monotonic
      yield
      monotonic - started
    end

    def monotonic = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # Nothing is out, nobody waits, and every connection made is closed or idle.
    def assert_whole(pool, made = nil)
      stat = pool.stat
      assert_equal [0, 0, pool.size], [stat[:in_use], stat[:waiting], pool.available], pool.inspect
      taken = Array.new(pool.size) { Thread.new { pool.checkout(timeout: 5) } }.map(&:value)
      assert_equal pool.size, taken.uniq(&:object_id).size, "a connection was handed out twice"
      return unless made

      assert_empty made.reject(&:closed?) - taken, "connections were lost"
    end
  end
end
