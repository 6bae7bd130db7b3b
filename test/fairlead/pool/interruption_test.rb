# frozen_string_literal: true

require_relative "helper"
require "timeout"

module Fairlead
  # Random schedules with interruptions at any point: nothing is lost, nothing is had by two.
  # SCHEDULES=100000 runs as many as the pool was proven with.
  class PoolInterruptionTest < PoolTest
    SCHEDULES = Integer(ENV.fetch("SCHEDULES", 6_000))
    Interruption = Class.new(StandardError)

    def setup
      @report = Thread.report_on_exception
      Thread.report_on_exception = false
    end

    def teardown
      Thread.report_on_exception = @report
    end

    def test_threads_that_are_killed_raised_in_and_timed_out_at_any_point
      random = Random.new(Integer(ENV.fetch("SEED", 1)))
      rounds = SCHEDULES / 2
      until rounds <= 0
        pool, made = connections(random.rand(1..3))
        count = random.rand(2..6)
        threads = Array.new(count) { worker(pool, random.rand(1_000_000)) }
        interrupt(threads, random)
        finish(threads)
        assert_whole(pool, made)
        rounds -= count
      end
    end

    if RUBY_ENGINE == "ruby"
      require "async"

      def test_fibers_that_are_cancelled_and_raised_in_at_any_point
        random = Random.new(Integer(ENV.fetch("SEED", 1)))
        rounds = SCHEDULES / 2
        until rounds <= 0
          pool, made = connections(random.rand(1..3))
          count = random.rand(2..20)
          Sync { |task| cancel(Array.new(count) { fiber(task, pool, random) }, random) }
          assert_whole(pool, made)
          rounds -= count
        end
      end

      def test_threads_and_fibers_of_several_reactors_mixed
        random = Random.new(Integer(ENV.fetch("SEED", 1)))
        (SCHEDULES / 500).times do
          pool, made = connections(random.rand(1..3))
          reactors = Array.new(2) do
            seed = random.rand(1_000_000)
            Thread.new do
              own = Random.new(seed)
              Sync { |task| cancel(Array.new(8) { fiber(task, pool, own) }, own) }
            end
          end
          threads = Array.new(4) { worker(pool, random.rand(1_000_000)) }
          interrupt(threads, random)
          finish(threads + reactors)
          assert_whole(pool, made)
        end
      end
    end

    private

    def worker(pool, seed)
      Thread.new do
        random = Random.new(seed)
        random.rand(1..4).times do
          work(pool, random) { random.rand(3).zero? ? Thread.pass : nil }
        rescue Interruption
          nil
        end
      end
    end

    # What the tests themselves raised is no failure; all else is.
    def finish(threads)
      threads.each do |thread|
        thread.join
      rescue Interruption
        nil
      end
    end

    def work(pool, random)
      pool.with(timeout: [0, 0.0005, 0.01, 1].sample(random: random)) do |connection|
        connection.use { yield }
        raise "another one when nested" unless random.rand(4).positive? || pool.with(&:itself).equal?(connection)

        pool.discard_current_connection(&:close) if random.rand(6).zero?
        raise "of the app" if random.rand(9).zero?
      end
    rescue Pool::TimeoutError, RuntimeError => error
      # Who waited in vain is told where the holder is, in any words.
      raise if error.message.match?(/\A(used|another)/)
    end

    def interrupt(threads, random)
      random.rand(0..threads.size * 2).times do
        Thread.pass if random.rand(2).zero?
        sleep random.rand * 0.0005 if random.rand(4).zero?
        thread = threads.sample(random: random)
        random.rand(3).zero? ? thread.kill : thread.raise(Interruption)
      end
    end

    def fiber(task, pool, random)
      task.async do |child|
        work(pool, random) { sleep(random.rand * 0.0005) if random.rand(2).zero? }
        work(pool, random) { child.yield }
      rescue Interruption
        nil
      end
    end

    def cancel(tasks, random)
      random.rand(0..tasks.size).times do
        sleep(random.rand * 0.0003) if random.rand(2).zero?
        task = tasks.sample(random: random)
        if random.rand(2).zero?
          task.stop
        elsif task.running? && task.fiber&.alive?
          Fiber.scheduler.raise(task.fiber, Interruption)
        end
      end
      tasks.each(&:wait)
    end
  end
end
