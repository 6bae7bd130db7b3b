# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../burst"

module Fairlead
  # Async::Semaphore, shared by requests of several reactors, as in the pool of a shared client of Async's.
  # Covers fiber_safety/semaphores.rb
  class SemaphoresTest < Test
    include Burst

    APP = <<~'RUBY'
      require "async/semaphore"
      require "async/barrier"

      ONE, TWO = Async::Semaphore.new(1), Async::Semaphore.new(2)
      HOLD, LOCK = Thread::Queue.new, Thread::Mutex.new
      $got = []
      $running = $most = 0

      def watched
        LOCK.synchronize { $most = [$most, $running += 1].max }
        yield
      ensure
        LOCK.synchronize { $running -= 1 }
      end

      WAYS = {
        # It keeps its thread, so that another one serves the next request.
        "/hold" => lambda {
          ONE.acquire
          waits = Async { ONE.acquire { $got << "place" } }
          Fiber.blocking { HOLD.pop }
          waits.wait
          "held"
        },
        "/held" => -> { HOLD.num_waiting },
        "/release" => -> { ONE.release; HOLD << true; "released" },
        "/got" => -> { $got.join(" ") },
        "/free" => -> { ONE.count },
        "/work" => -> { TWO.acquire { watched { sleep 0.002; Fiber.blocking { sleep 0.01 } } }; "worked" },
        "/tasks" => lambda {
          Array.new(6) { |i| TWO.async(i) { |_, number| watched { sleep 0.002; number } } }.sum(&:wait)
        },
        "/threads" => -> { Array.new(4) { Thread.new { 50.times { TWO.acquire { watched { Thread.pass } } } } }.each(&:join); "threads" },
        "/most" => -> { [$most, TWO.count, TWO.waiting.size].inspect },
        # One gets its place, and is stopped before it goes on.
        "/stop-one-that-has-it" => lambda {
          one = Async::Semaphore.new(1)
          one.acquire
          first, second = Array.new(2) { |i| Async { one.acquire { i } } }
          one.release
          first.stop
          [second.wait, one.count].inspect
        },
        "/stop-one-that-waits" => lambda {
          one = Async::Semaphore.new(1)
          one.acquire
          first, second = Array.new(2) { |i| Async { one.acquire { i } } }
          first.stop
          one.release
          [second.wait, one.count].inspect
        },
        # Another thread has the lock meanwhile.
        "/stop-one-that-releases" => lambda {
          one, locked = Async::Semaphore.new(1), Thread::Queue.new
          one.acquire
          thread = Thread.new { Fairlead::Semaphores.const_get(:LOCK).synchronize { locked << true; sleep 0.05 } }
          locked.pop
          Async { one.release }.stop
          thread.join
          one.count
        },
        "/limits" => lambda {
          one = Async::Semaphore.new(1)
          one.acquire
          waits = Array.new(3) { Async { one.acquire { sleep 0.001 } } }
          one.limit = 3
          let_go = one.count
          one.limit = 1
          waits[0, 2].each(&:wait)
          one.release
          waits.each(&:wait)
          [let_go, one.count, one.waiting.empty?].inspect
        },
        # A task that never begins takes no place.
        "/stopped-parent" => lambda {
          one, barrier = Async::Semaphore.new(1), Async::Barrier.new
          barrier.stop
          raised = begin one.async(parent: barrier) { 1 } rescue $!.class end
          [raised, one.count].inspect
        },
      }
      run ->(env) { [200, {}, [WAYS.fetch(env["PATH_INFO"]).call.to_s]] }
    RUBY

    def test_a_place_goes_to_a_fiber_of_another_thread
      with_server(APP) do |server|
        holds = Thread.new { server.get("/hold").body }
        eventually("it holds its thread") { server.get("/held").body == "1" }
        assert_equal "released", server.get("/release").body
        assert_equal "held", holds.value
        assert_equal %w[place 0], [server.get("/got").body, server.get("/free").body]
      end
    end

    def test_requests_of_several_threads_and_threads_of_the_app_share_one
      with_server(APP) do |server|
        answers = burst(server, ["/work", "/tasks", "/threads"] * 10).map(&:body)
        assert_each_equal %w[worked 15 threads], answers.each_slice(3).to_a, server
        assert_equal "[2, 0, 0]", server.get("/most").body
      end
    end

    def test_a_place_is_never_lost
      with_server(APP) do |server|
        assert_equal "[1, 0]", server.get("/stop-one-that-has-it").body
        assert_equal "[1, 0]", server.get("/stop-one-that-waits").body
        assert_equal "0", server.get("/stop-one-that-releases").body
        assert_equal "[3, 0, true]", server.get("/limits").body
        assert_equal "[RuntimeError, 0]", server.get("/stopped-parent").body
      end
    end
  end
end
