# frozen_string_literal: true

require_relative "helper"
require "timeout"

module Fairlead
  # Random schedules with interruptions at any point: nothing is lost, nothing is had by two. A schedule is a pool of its
  # own with all that is done to it; `rake schedules` runs 100,000 of them and says how many there were.
  class PoolInterruptionTest < PoolTest
    SCHEDULES = Integer(ENV.fetch("SCHEDULES", 1_000))
    # What is run, by kind.
    RUN = Hash.new(0)
    Interruption = Class.new(StandardError)

    if ENV.key?("SCHEDULES")
      Minitest.after_run do
        puts "#{RUN.values.sum} schedules: #{RUN.map { |kind, count| "#{count} of #{kind}" }.join(", ")}"
      end
    end

    def setup
      @report = Thread.report_on_exception
      Thread.report_on_exception = false
    end

    def teardown
      Thread.report_on_exception = @report
    end

    def test_threads_that_are_killed_raised_in_and_timed_out_at_any_point
      schedules("threads", 6) do |pool, random|
        threads = Array.new(random.rand(2..6)) { worker(pool, random.rand(1_000_000)) }
        interrupt(threads, random)
        finish(threads)
      end
    end

    if RUBY_ENGINE == "ruby"
      require "async"

      def test_fibers_that_are_cancelled_and_raised_in_at_any_point
        schedules("fibers", 3) do |pool, random|
          Sync { |task| cancel(Array.new(random.rand(2..20)) { fiber(task, pool, random) }, random) }
        end
      end

      def test_threads_and_fibers_of_several_reactors_mixed
        schedules("both mixed", 1) do |pool, random|
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
        end
      end
    end

    private

    # @param tenths [Integer] of all schedules.
    def schedules(kind, tenths)
      random = Random.new(Integer(ENV.fetch("SEED", 1)))
      (SCHEDULES * tenths / 10).times do
        pool, made = connections(random.rand(1..3), max_waiting: [nil, nil, 1, 4].sample(random: random))
        yield pool, random
        shut_down?(pool) ? assert_ended(pool, made) : assert_whole(pool, made)
        RUN[kind] += 1
      end
    end

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
        maintain(pool, random) if random.rand(6).zero?
        raise "of the app" if random.rand(9).zero?
      end
    rescue Pool::TimeoutError, Pool::FullError, Pool::PoolShuttingDownError, RuntimeError => error
      # Who waited in vain is told where the holder is, in any words.
      raise if error.message.match?(/\A(used|another)/)
    end

    def maintain(pool, random)
      case random.rand(20)
      when 0 then pool.shutdown(&:close)
      when 1..9 then pool.reload(&:close)
      else pool.reap(idle_seconds: 0, &:close)
      end
    end

    def shut_down?(pool)
      pool.with(timeout: 0) { false }
    rescue Pool::PoolShuttingDownError
      true
    end

    def assert_ended(pool, made)
      assert_equal [0, 0], pool.stat.values_at(:in_use, :waiting), pool.inspect
      assert_empty made.reject(&:closed?), "connections were lost"
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
