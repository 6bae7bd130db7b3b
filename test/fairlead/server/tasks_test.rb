# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../burst"

module Fairlead
  # Async's tasks inside a request: they are there, they work, and whatever is stopped, only that request ends.
  class TasksTest < Test
    include Burst

    APP = <<~'RUBY'
      require "async/barrier"
      require "async/semaphore"

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      def serving_fibers = Fiber.scheduler.children.to_a.count { |task| task.annotation == "serving" }
      $done = []
      $stops = 0

      WAYS = {
        "/current" => -> { Async::Task.current.running? },
        "/async" => -> { Async { sleep 0.05; "child" }.wait },
        "/children" => lambda {
          started = now
          sum = Array.new(10) { |i| Async { sleep 0.05; i } }.sum(&:wait)
          "#{sum} #{now - started}"
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
        "/done" => -> { $done.join(" ") },
        "/fibers" => -> { serving_fibers },
        "/fail" => -> { Async { raise "child's own" }; "fine" },
        "/stop" => -> { Async::Task.current.stop },
        "/stop-by-child" => -> { task = Async::Task.current; Async { task.stop }; sleep 1 },
        "/stop-later" => -> { task = Async::Task.current; 5.times { |i| Async { sleep 0.02 * (i + 1); $stops += 1; task.stop } }; "ok" },
        "/stops" => -> { $stops },
        "/stop-child" => -> { child = Async { sleep 5 }; child.stop; child.status },
        "/raise-cancel" => -> { raise Async::Cancel },
        "/nap" => -> { sleep 0.3; "slept" },
        "/hello" => -> { "hello" },
      }
      run ->(env) { [200, {}, [WAYS.fetch(env["PATH_INFO"]).call.to_s]] }
    RUBY

    def test_tasks_work_inside_a_request
      with_server(APP) do |server|
        { "/current" => "true", "/async" => "child", "/barrier" => "01234",
          "/semaphore" => "2", "/sync" => "Async::TimeoutError", "/condition" => "signalled", "/fail" => "fine",
          "/stop-child" => "cancelled" }.each do |path, expected|
          assert_equal expected, server.get(path).body, path
        end
        assert_one_below(0.45, "ten that sleep at once for 0.05 s") do
          sum, seconds = server.get("/children").body.split
          assert_equal "45", sum
          seconds.to_f
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

    def test_a_stopped_request_answers_500_and_ends_nothing_else
      with_server(APP) do |server|
        %w[/stop /stop-by-child /raise-cancel].each do |path|
          others = Array.new(3) { Thread.new { server.get("/nap").body } }
          assert_equal "500", server.get(path).code, path
          assert_equal ["slept"] * 3, others.map(&:value), path
        end
      end
    end

    # The fiber that answered the request may rest by then, or wait for the core as the driver.
    def test_a_request_stopped_after_its_end_takes_no_serving_fiber_away
      with_server(APP) do |server|
        4.times do |round|
          assert_equal "ok", server.get("/stop-later").body
          sleep 0.15
          eventually("the last of them has come") { server.get("/stops").body.to_i == 5 * (round + 1) }
          # All can wait at once, so each has a fiber, and somebody drives.
          assert_operator seconds_of_burst(server, ["/nap"] * 5 + ["/hello"]), :<, 1.4
        end
        assert_operator server.get("/fibers").body.to_i, :<=, 8
      end
    end
  end
end
