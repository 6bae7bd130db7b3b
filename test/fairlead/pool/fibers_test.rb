# frozen_string_literal: true

require_relative "helper"
return if RUBY_ENGINE == "jruby" # it has no Fiber scheduler

require "async"

module Fairlead
  # The same for fibers under a scheduler, and for both together.
  class PoolFibersTest < PoolTest
    def test_waiting_fibers_get_connections_in_the_order_they_came
      pool, = connections(2)
      served = []
      Sync { Array.new(100) { |number| Async { pool.with { served << number; sleep 0 } } }.each(&:wait) }

      assert_equal (0...100).to_a, served
    end

    def test_a_waiting_fiber_lets_its_siblings_run
      pool, = connections(1)
      ran = false
      Sync do
        pool.with do
          waiter = Async { pool.with { ran } }
          Async { ran = true }

          assert_equal 1, pool.waiting
          pool.checkin
          assert waiter.wait
        end
      end
    end

    def test_what_a_waiter_makes_whose_turn_had_come_before_the_shutdown_is_closed
      pool, made = connections(1)
      Sync do
        pool.checkout
        waiter = Async { pool.with(&:number) }
        pool.discard_current_connection(&:close)
        pool.checkin
        pool.shutdown(&:close)

        assert_equal 1, waiter.wait
      end

      assert_equal [true, true], made.map(&:closed?)
    end

    def test_two_thousand_fibers_on_five_connections_are_served_in_order_and_none_twice
      pool, made = connections(5)
      handed = record_handovers(pool)
      fibers = []
      Sync do
        tasks = Array.new(2_000) do
          Async { fibers << Fiber.current; pool.with(timeout: 20) { |connection| connection.use { sleep 0.0005 } } }
        end
        tasks.each(&:wait)
      end

      assert_equal (0...2_000).to_a, numbers(handed, fibers)
      assert_equal 5, made.size
    end

    # The pool decides who has a place, the scheduler when each goes on: who finds a place free runs at once, while
    # one that was given its own before is still to be woken.
    def test_the_order_is_that_of_the_handing_over_whichever_runs_first
      pool, = connections(2)
      handed = record_handovers(pool)
      fibers = []
      ran = []
      ask = proc { |number| Async { fibers << Fiber.current; pool.with { ran << number } } }
      Sync do
        holder = Fiber.new { fibers << Fiber.current; pool.with { Fiber.yield } }
        holder.resume
        fibers << Fiber.current
        pool.checkout
        earlier = ask.call(1)
        pool.checkin
        holder.resume
        ask.call(2)
        earlier.wait
      end

      assert_equal [2, 1], ran
      assert_equal [0, 1, 2, 3], numbers(handed, fibers)
    end

    def test_threads_and_fibers_stand_in_one_line
      pool, = connections(1)
      served = Thread::Queue.new
      parties = []
      with_all_taken(pool) do |release|
        commands = Thread::Queue.new
        reactor = Thread.new { Sync { while (work = commands.pop) do Async(&work) end } }
        10.times do |number|
          work = proc { pool.with { served << number } }
          number.even? ? parties << Thread.new(&work) : commands << work
          await_waiting(pool, number + 1)
        end
        commands << nil
        release.call
        [*parties, reactor].each(&:join)
      end

      assert_equal (0...10).to_a, Array.new(10) { served.pop }
    end

    def test_each_fiber_of_a_thread_has_a_connection_of_its_own
      pool, = connections(2)
      Sync do
        pool.with do |outer|
          assert_same outer, pool.with { |inner| inner }
          refute_same outer, Async { pool.with { |other| other } }.wait
        end
      end
    end

    def test_a_cancelled_fiber_leaves_the_line
      pool, = connections(1)
      served = []
      Sync do
        tasks = pool.with do
          tasks = Array.new(3) { |number| Async { pool.with { served << number } } }
          tasks[1].stop

          assert_equal 2, pool.waiting
          tasks
        end
        tasks.each(&:wait)
      end

      assert_equal [0, 2], served
      assert_whole(pool)
    end

    def test_what_was_handed_to_a_fiber_that_is_cancelled_at_that_moment_goes_to_the_next
      pool, = connections(1)
      served = []
      Sync do
        first = second = nil
        pool.with do
          first = Async { pool.with { served << :first } }
          second = Async { pool.with { served << :second } }
        end
        first.stop # it owns the connection, and has not run since
        second.wait
      end

      assert_equal [:second], served
      assert_whole(pool)
    end

    def test_a_fiber_s_wait_ends_in_time
      pool, = connections(1)
      took = nil
      Sync do
        pool.with do
          Async do
            took = duration { assert_raises(Pool::TimeoutError) { pool.with(timeout: 0.05) { flunk } } }
          end.wait
        end
      end

      assert_includes 0.05..10, took
    end

    def test_a_fiber_that_never_ran_again_is_passed_by
      pool, = connections(1)
      pool.checkout
      lost = Thread.new do
        fiber = Fiber.new(blocking: false) { pool.with { flunk } }
        Fiber.set_scheduler(Abandoning.new)
        fiber.resume
        fiber
      end.value
      assert_equal [1, true], [pool.waiting, lost.alive?]
      waiter = Thread.new { pool.with { :served } }
      await_waiting(pool, 2)
      pool.checkin

      assert_equal :served, waiter.value
    end

    private

    # @return [Array<Fiber>] filled in the order in which the pool gives them a place.
    def record_handovers(pool)
      handed = []
      pool.instance_variable_get(:@places).instance_variable_get(:@holders).define_singleton_method(:[]=) do |fiber, place|
        handed << fiber
        super(fiber, place)
      end
      handed
    end

    def numbers(handed, fibers)
      numbers = fibers.each_with_index.to_h.compare_by_identity
      handed.map { |fiber| numbers[fiber] }
    end

    # A scheduler that never comes back to a fiber that waits.
    class Abandoning
      def block(*) = Fiber.yield
      def unblock(*) = nil
      def kernel_sleep(*) = Fiber.yield
      def io_wait(*) = Fiber.yield
      def fiber_interrupt(*) = nil
      def close = nil
      def fiber(&block) = Fiber.new(blocking: false, &block).tap(&:resume)
    end
  end
end
