# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../burst"

module Fairlead
  # Async's tasks inside a request: they are there, they work, and whatever is stopped, only that request ends.
  # Covers fiber_safety/scheduled_call.rb, fiber_safety/serving_scheduler.rb
  class TasksTest < Test
    include Burst

    APP = <<~'RUBY'
      require "async/barrier"
      require "async/semaphore"

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      def serving_fibers = Fiber.scheduler.children.to_a.count { |task| task.annotation == "serving" && task.running? }
      $done = []
      $stops = $gathered = 0
      GATHERED, HOLD = Thread::Queue.new, Thread::Queue.new

      def after_this_request(seconds)
        request = Async::Task.current
        Async do |task|
          request.wait
          sleep seconds
          $stops += 1
          yield request, task
        end
      end

      WAYS = {
        "/current" => -> { Async::Task.current.running? },
        "/async" => -> { Async { sleep 0.05; "child" }.wait },
        "/children" => lambda {
          begun, all_have = 0, Thread::Queue.new
          Array.new(10) { |i| Async { (begun += 1) == 10 ? all_have.close : all_have.pop; i } }.sum(&:wait)
        },
        "/barrier" => lambda {
          barrier = Async::Barrier.new
          results = []
          5.times { |i| barrier.async { sleep 0.02; results << i } }
          barrier.wait
          results.sort.join
        },
        "/semaphore" => lambda {
          semaphore, most, running = Async::Semaphore.new(2), 0, 0
          Array.new(6) { semaphore.async { most = [most, running += 1].max; sleep 0.01; running -= 1 } }.each(&:wait)
          most
        },
        "/sync" => -> { Sync { |task| task.with_timeout(0.02) { sleep 5 } } rescue $!.class },
        "/condition" => lambda {
          condition = Async::Condition.new
          Async { sleep 0.02; condition.signal("signalled") }
          condition.wait
        },
        "/leave-behind" => -> { Async { sleep 0.2; $done << "left" }; serving_fibers },
        "/keep" => -> { $kept ||= Async::Task.current; Async { sleep 0.01 }; "ok" },
        "/chain" => lambda {
          link = ->(left) { Async(transient: true) { sleep 0.001; left.zero? ? ($done << "chained"; sleep) : link.call(left - 1) } }
          link.call(300)
          "ok"
        },
        "/kept-fibers" => -> { GC.start; ObjectSpace.each_object(Fiber).count },
        "/tasks" => -> { GC.start; ObjectSpace.each_object(Async::Task).count },
        "/done" => -> { $done.join(" ") },
        "/fibers" => -> { serving_fibers },
        "/fail" => -> { Async { raise "child's own" }; "fine" },
        "/stop" => -> { Async::Task.current.stop },
        "/stop-by-child" => -> { task = Async::Task.current; Async { task.stop }; sleep 1 },
        "/stop-later" => -> { 5.times { |i| after_this_request(0.02 * i) { |request| request.stop } }; "ok" },
        "/stop-soon" => -> { after_this_request(0.05) { |request| request.stop }; "ok" },
        "/raise-soon" => -> { fiber = Fiber.current; after_this_request(0.05) { fiber.raise("of another one") }; "ok" },
        "/stop-parent-soon" => -> { after_this_request(0.05) { |_, task| task.parent.stop }; "ok" },
        # The first is stopped by the second, as whose stop begins the third's own does.
        "/stop-at-once" => lambda {
          task, soon = Async::Task.current, now + 0.25
          Async { sleep 9 }
          2.times { Async { sleep [soon - now, 0].max; $stops += 1; task.stop; $done << "stopped" } }
          Async { sleep 0.24; nil until now > soon + 0.01 }
          "ok"
        },
        "/wait-for-request" => -> { task = Async::Task.current; Async { task.wait; $done << "waited" }; "ok" },
        "/variable-later" => lambda {
          Async { sleep 0.02; $done << Thread.current.thread_variable_get(:none).inspect }
          "ok"
        },
        "/stops" => -> { $stops },
        "/stop-child" => -> { child = Async { sleep 5 }; child.stop; child.status },
        "/stop-root" => -> { root = Async::Task.current.root; Thread.new { root.stop }.join; "ok" },
        "/stop-in-child" => -> { Process.wait2(fork { Async::Task.current.stop; exit!(7) })[1].exitstatus },
        "/raise-cancel" => -> { raise Async::Cancel },
        # It keeps its thread, so that another one serves the next request.
        "/hold" => lambda {
          $held = Async { begin sleep ensure $done << "cancelled" end }
          Fiber.blocking { HOLD.pop }
          "held"
        },
        "/held" => -> { HOLD.num_waiting },
        "/cancel-held" => -> { $held.cancel; HOLD << true; "asked" },
        "/nap" => -> { sleep 1; "slept" },
        # Five wait for each other.
        "/gather" => -> { (($gathered += 1) % 5).zero? ? 4.times { GATHERED << true } : GATHERED.pop; "gathered" },
        "/hello" => -> { "hello" },
      }
      run ->(env) { [200, {}, [WAYS.fetch(env["PATH_INFO"]).call.to_s]] }
    RUBY

    def test_tasks_work_inside_a_request
      with_server(APP) do |server|
        { "/current" => "true", "/async" => "child", "/barrier" => "01234",
          "/semaphore" => "2", "/sync" => "Async::TimeoutError", "/condition" => "signalled", "/fail" => "fine",
          "/children" => "45", "/stop-child" => "cancelled" }.each do |path, expected|
          assert_equal expected, server.get(path).body, path
        end
      end
    end

    def test_tasks_left_behind_go_on_without_holding_a_fiber
      with_server(APP) do |server|
        counts = Array.new(30) { server.get("/leave-behind").body.to_i }
        assert_operator counts.max, :<=, 4, "serving fibers"
        eventually("all tasks are done") { server.get("/done").body == (["left"] * 30).join(" ") }
      end
    end

    def test_an_ended_task_that_is_kept_keeps_no_later_one
      with_server(APP) do |server|
        200.times { server.get("/keep") }
        eventually("they are collected") { server.get("/tasks").body.to_i < 50 }
      end
    end

    def test_a_task_does_not_keep_the_ended_fiber_that_has_begun_it
      with_server(APP) do |server|
        server.get("/chain")
        eventually("the last one is done") { server.get("/done").body == "chained" }
        assert_operator server.get("/kept-fibers").body.to_i, :<, 100
      end
    end

    def test_a_task_of_another_thread_is_cancelled_there
      with_server(APP) do |server|
        holds = Thread.new { server.get("/hold").body }
        eventually("it holds its thread") { server.get("/held").body == "1" }
        assert_equal "asked", server.get("/cancel-held").body
        assert_equal "held", holds.value
        eventually("it is told") { server.get("/done").body == "cancelled" }
      end
    end

    def test_a_thread_stops_no_scheduler_of_the_server
      with_server(APP) do |server|
        assert_equal "ok", server.get("/stop-root").body
        assert_equal "slept", server.get("/nap").body
      end
    end

    def test_a_task_that_stops_itself_in_the_child_of_a_fork_ends_the_child
      with_server(APP) { |server| assert_equal "1", server.get("/stop-in-child").body }
    end

    def test_a_stopped_request_answers_500_and_ends_nothing_else
      with_server(APP) do |server|
        %w[/stop /stop-by-child /raise-cancel].each do |path|
          others = Array.new(3) { Thread.new { server.get("/nap").body } }
          assert_equal "500", server.get(path).code, path
          assert_each_equal "slept", others.map(&:value), server
        end
      end
    end

    # Whatever has its fiber by then.
    def test_what_a_task_left_behind_does_to_its_request_meets_no_later_one
      with_server(APP) do |server|
        workers = server.worker_pids
        (%w[/stop-soon /raise-soon /stop-parent-soon] * 3).each.with_index(1) do |path, number|
          assert_equal "ok", server.get(path).body
          assert_each_equal "slept", burst(server, ["/nap"] * 3), server, &:body
          eventually("it has done it") { server.get("/stops").body.to_i == number }
        end
        assert_equal workers, server.worker_pids
      end
    end

    def test_two_tasks_left_behind_stop_their_ended_request_at_the_same_time
      with_server(APP) do |server|
        10.times { assert_equal "ok", server.get("/stop-at-once").body }
        eventually("all have stopped it") { server.get("/stops").body == "20" }
        assert_each_equal "slept", burst(server, ["/nap"] * 3), server, &:body
      end
    end

    def test_a_task_left_behind_finds_its_request_ended
      with_server(APP) do |server|
        { "/wait-for-request" => "waited", "/variable-later" => "nil" }.each do |path, expected|
          assert_equal "ok", server.get(path).body
          eventually("it goes on") { server.get("/done").body.end_with?(expected) }
        end
      end
    end

    # The fiber that answered the request may rest by then, or wait for the core as the driver.
    def test_a_request_stopped_after_its_end_takes_no_serving_fiber_away
      with_server(APP) do |server|
        stops = -> { server.get("/stops").body.to_i }
        4.times do
          before = stops.call
          assert_equal "ok", server.get("/stop-later").body
          sleep 0.15 # most have stopped it by then
          # A task's end is not that of its children; who stops it then stops them, unless their time has come at the same moment.
          eventually("the first of them has stopped it") { stops.call > before }
          # All can wait at once, so each has a fiber, and somebody drives.
          *gathered, hello = burst(server, ["/gather"] * 5 + ["/hello"])
          assert_each_equal "gathered", gathered, server, &:body
          assert_equal "hello", hello.body
        end
        assert_operator server.get("/fibers").body.to_i, :<=, 8
      end
    end
  end
end
