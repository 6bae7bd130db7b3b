# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../stalls"
require "async"
require "active_support"
require "active_support/isolated_execution_state"

module Fairlead
  # Covers serving/offload/job.rb
  class OffloadTest < Test
    include SpeaksHTTP
    include Stalls

    Refused = Class.new(StandardError)

    def test_it_returns_what_the_block_returns_from_another_thread
      answer = in_a_fiber { Fairlead.offload { [Thread.current, 42] } }

      refute_same Thread.current, answer.first
      assert_equal 42, answer.last
    end

    def test_other_fibers_go_on_meanwhile
      order = in_a_fiber do |task|
        gate, order = Thread::Queue.new, []
        other = task.async { sleep 0.001 and order << :other and gate << true }
        Fairlead.offload { gate.pop }
        order << :offloaded
        other.wait
        order
      end

      assert_equal %i[other offloaded], order
    end

    def test_it_raises_what_the_block_raises_with_the_backtraces_of_both
      error = in_a_fiber do
        assert_raises(Refused) { calls_offload }
      end
      backtrace = error.backtrace.join("\n")

      assert_match(/offload_test\.rb:\d+:in .*raises_in_the_block.*offload_test\.rb:\d+:in .*calls_offload/m, backtrace)
      refute_includes backtrace, "offload/job.rb"
    end

    def test_an_error_that_is_frozen_is_raised_as_it_is
      in_a_fiber { assert_raises(Refused) { Fairlead.offload { raise Refused.new.freeze } } }
    end

    def test_a_throw_finds_its_catch
      assert_equal 7, in_a_fiber { catch(:out) { Fairlead.offload { throw :out, 7 } } }
    end

    def test_a_block_that_ends_its_thread_is_an_error_and_harms_no_other
      in_a_fiber do
        20.times { assert_raises(ThreadError) { Fairlead.offload { Thread.exit } } }

        assert_equal 1, Fairlead.offload { 1 }
      end
    end

    def test_where_no_scheduler_runs_the_block_runs_in_place
      assert_same Thread.current, Fairlead.offload { Thread.current }
      assert_same Thread.current, in_a_fiber { Fiber.blocking { Fairlead.offload { Thread.current } } }
    end

    def test_within_an_offloaded_block_it_runs_in_place_also_with_a_scheduler_of_its_own
      with_threads(1) do
        threads = in_a_fiber do
          Fairlead.offload { [Thread.current, Fairlead.offload { Thread.current }, Sync { Fairlead.offload { Thread.current } }] }
        end

        assert_equal 1, threads.uniq.size
      end
    end

    def test_those_that_find_all_threads_busy_wait_first_come_first_served
      with_threads(1) do
        order, most, running = [], 0, 0
        in_a_fiber do |task|
          Array.new(20) do |number|
            task.async do
              Fairlead.offload do
                most = [most, running += 1].max
                order << number
                sleep 0.001
                running -= 1
              end
            end
          end.each(&:wait)
        end

        assert_equal 1, most
        assert_equal (0...20).to_a, order
      end
    end

    def test_where_the_system_allows_no_more_threads_those_that_there_are_run_it
      with_threads(2) do
        in_a_fiber do |task|
          gate = Thread::Queue.new
          first = task.async { Fairlead.offload { gate.pop } }
          second = without_more_threads(Offload::Thread) { task.async { Fairlead.offload { 2 } } }
          gate << 1

          assert_equal [1, 2], [first, second].map(&:wait)
        end
      end
    end

    def test_where_there_is_none_the_block_never_runs
      with_threads(1) do
        in_a_fiber do
          ran = 0
          without_more_threads(Offload::Thread) { assert_raises(ThreadError) { Fairlead.offload { ran += 1 } } }

          assert_equal 0, Fairlead.offload { ran }
          assert_equal 0, Fairlead.offload { ran }
        end
      end
    end

    def test_nor_does_one_that_waits_as_the_last_thread_ends
      with_threads(1) do
        in_a_fiber do |task|
          gate = Thread::Queue.new
          calls = Array.new(3) do
            task.async { assert_raises(ThreadError) { task.with_timeout(10) { Fairlead.offload { gate.pop && Thread.exit } } } }
          end
          without_more_threads(Offload::Thread) do
            gate << true
            calls.each(&:wait)
          end
        end
      end
    end

    def test_the_block_finds_what_belongs_to_the_fiber
      found = in_a_fiber do
        Fiber[:tenant] = "a"
        Thread.current[:user] = "b"
        Fiber.current.active_support_execution_state = { zone: "c" }
        Fairlead.offload { [Fiber[:tenant], Thread.current[:user], Fiber.current.active_support_execution_state] }
      end

      assert_equal ["a", "b", { zone: "c" }], found
    end

    def test_and_nothing_of_another_one
      with_threads(1) do
        in_a_fiber do |_task|
          Fiber[:tenant] = Thread.current[:user] = "a"
          Fairlead.offload { Thread.current[:left] = Fiber[:left] = "behind" }
        end
        found = in_a_fiber do
          Fairlead.offload { [Fiber.current.storage || {}, Thread.current.keys - %i[async_task]] }
        end

        refute_includes found.first.values, "a"
        assert_empty found.flat_map { |keys| keys.to_a.flatten & [:tenant, :left, :user] }
      end
    end

    def test_who_stops_waiting_goes_on_at_once_and_the_block_ends_by_itself
      gate, begun, ended = Array.new(3) { Thread::Queue.new }
      in_a_fiber do |task|
        eventually("a block that has begun") do # one that no thread has come to by then never does
          assert_raises(Async::TimeoutError) do
            task.with_timeout(0.01) { Fairlead.offload { begun << true and ended << gate.pop } }
          end
          !begun.empty?
        end
        gate << "in peace"

        assert_equal "in peace", ended.pop(timeout: 5)
        assert_equal 1, Fairlead.offload { 1 }
      end
    ensure
      gate.close
    end

    def test_a_block_that_nobody_waits_for_any_more_is_not_begun
      with_threads(1) do
        begun = []
        in_a_fiber do |task|
          gate = Thread::Queue.new
          first = task.async { Fairlead.offload { gate.pop } }
          second = task.async { Fairlead.offload { begun << :second } }
          second.stop
          gate << true
          first.wait
          Fairlead.offload { begun << :third }
        end

        assert_equal [:third], begun
      end
    end

    def test_the_child_of_a_fork_has_threads_of_its_own
      output = in_a_fiber do
        Fairlead.offload { 1 }
        in_a_child { Sync { Fairlead.offload { "from the child" } } }
      end

      assert_equal "from the child", output
    end

    def test_the_child_of_a_fork_within_a_block_never_comes_back_to_the_pool
      reader, writer = IO.pipe
      pid = in_a_fiber { Fairlead.offload { fork.tap { |pid| writer.write("child") unless pid } } }
      writer.close
      status = Process.wait2(pid).last

      assert_predicate status, :success?
      assert_equal "child", reader.read
    end

    timing def test_calls_are_cheap
      # 50 µs on the machine where it was written, most of it the kernel's for waking two threads.
      assert_median_below(0.0005, runs: 3) { in_a_fiber { duration { 5_000.times { Fairlead.offload { 1 } } } } / 5_000 }
    end

    SERVED = Stalls::APP.sub('when "/free"', <<~RUBY.chomp)
      when "/offloaded" then Fairlead.offload { Cwork.without_gvl(seconds) }
      when "/overdue" then (Fairlead.request_timeout = 1.5; Fairlead.offload { Cwork.without_gvl(seconds) })
      when "/free"
    RUBY

    # A standby cannot do that: what is suspended on a blocked reactor waits for it.
    timing def test_a_request_that_waits_on_the_same_reactor_goes_on_beside_an_offloaded_one
      server = shared_server(SERVED)
      before = figures(server)[:standbys]
      slow = stall(server, "/offloaded", 1)
      sleeper = client(to: server).write("GET /sleep?0.05 HTTP/1.1\r\nHost: a\r\n\r\n")

      assert_equal 200, sleeper.response.status
      assert slow.silent?(0), "it waited for the other one"
      assert_equal 200, slow.response.status
      assert_equal before, figures(server)[:standbys], "a standby had to serve it"
    end

    def test_a_request_that_takes_too_long_is_cancelled_and_its_block_ends_by_itself
      server = with_server(SERVED, "--request-timeout", "60")

      assert_operator duration { assert_equal "504", server.get("/overdue?15").code }, :<, 12
      assert_equal "200", server.get("/offloaded?0.01").code
    end

    private

    def in_a_fiber(&) = Sync(&)

    def calls_offload = Fairlead.offload { raises_in_the_block }

    def raises_in_the_block = raise(Refused)

    # A pool that no test before has used.
    def with_threads(count)
      before, Offload.threads = Offload.threads, count
      Offload.instance_variable_set(:@pool, nil)
      yield
    ensure
      Offload.threads = before
      Offload.instance_variable_set(:@pool, nil)
    end

    def in_a_child
      reader, writer = IO.pipe
      pid = fork do
        writer.write(Thread.new { yield }.value)
        writer.close
        exit!
      end
      writer.close
      Process.wait(pid)
      reader.read
    end
  end
end
