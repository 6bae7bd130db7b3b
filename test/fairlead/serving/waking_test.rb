# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../burst"

module Fairlead
  # A wake-up arrives at once, wherever it comes from; and it ends the wait for which it was meant, never a later one
  # of the same fiber.
  class WakingTest < Test
    include Burst

    THREADS = <<~'RUBY'
      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      WAYS = {
        "/queue" => lambda { |queue|
          Thread.new { sleep 0.01; queue << now }
          queue.pop
        },
        "/condition" => lambda { |queue|
          mutex, condition = Thread::Mutex.new, Thread::ConditionVariable.new
          at = nil
          Thread.new { sleep 0.01; mutex.synchronize { at = now; condition.signal } }
          mutex.synchronize { condition.wait(mutex) until at }
          at
        },
        "/join" => lambda { |queue|
          thread = Thread.new { sleep 0.01; Thread.current[:at] = now }
          thread.join
          thread[:at]
        },
        "/mutex" => lambda { |queue|
          mutex, at = Thread::Mutex.new, nil
          Thread.new { mutex.synchronize { queue << 1; sleep 0.01; at = now } }
          queue.pop
          mutex.synchronize { at }
        },
      }
      run lambda { |env|
        case env["PATH_INFO"]
        when "/hello" then [200, {}, ["hello"]]
        when "/pipe" then reader, writer = IO.pipe; reader.wait_readable(3); writer.close; reader.close; [200, {}, []]
        else
          pushed = WAYS.fetch(env["PATH_INFO"]).call(Thread::Queue.new)
          [200, {}, [(now - pushed).to_s]]
        end
      }
    RUBY

    # The worker then waits in the core's own set.
    timing def test_another_thread_wakes_a_fiber_of_an_idle_worker
      with_server(THREADS) { |server| assert_woken_at_once(server) }
    end

    # It then waits in the scheduler's set.
    timing def test_another_thread_wakes_a_fiber_while_another_waits_for_a_descriptor
      with_server(THREADS) do |server|
        server.connect do |socket|
          socket.write("GET /pipe HTTP/1.1\r\nHost: localhost\r\n\r\n")
          assert_woken_at_once(server)
        end
      end
    end

    timing def test_another_thread_wakes_a_fiber_of_a_busy_worker
      with_server(THREADS) do |server|
        busy = true
        clients = Array.new(2) do
          Thread.new do
            server.connect do |socket|
              while busy
                socket.write("GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n")
                socket.readpartial(1024)
              end
            end
          end
        end
        assert_woken_at_once(server)
      ensure
        busy = false
        clients&.each(&:join)
      end
    end

    CLOSING = <<~'RUBY'
      run lambda { |env|
        reader, writer = IO.pipe
        thread = Thread.new do
          Thread.current.report_on_exception = false
          reader.read
        rescue IOError
          "interrupted"
        end
        Thread.pass until thread.stop?
        reader.close
        writer.close
        [200, {}, [thread.value]]
      }
    RUBY

    # Ruby tells the thread, and not the fiber, that the other one has let go.
    def test_who_closes_what_another_thread_reads_goes_on
      with_server(CLOSING) do |server|
        answers = burst(server, ["/"] * 20)
        assert_each_equal "interrupted", answers, server, &:body
      end
    end

    LATE = <<~'RUBY'
      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # Something ends the wait just when its time is over: it is woken twice. Both timers fire in one go, since the
      # first one's task keeps the CPU beyond the second one's time.
      def at_the_last_moment(&act)
        Async { sleep 0.003; spin_until = now + 0.01; nil while now < spin_until; act.call }
      end

      RACES = {
        "queue" => lambda {
          queue = Thread::Queue.new
          at_the_last_moment { queue << 1 }
          queue.pop(timeout: 0.006)
        },
        "sized-queue" => lambda {
          queue = Thread::SizedQueue.new(1)
          queue << 1
          at_the_last_moment { queue.pop }
          queue.push(2, timeout: 0.006)
        },
        "condition" => lambda {
          mutex, condition = Thread::Mutex.new, Thread::ConditionVariable.new
          at_the_last_moment { mutex.synchronize { condition.broadcast } }
          mutex.synchronize { condition.wait(mutex, 0.006) }
        },
        "timeout" => lambda {
          queue = Thread::Queue.new
          at_the_last_moment { queue << 1 }
          begin
            Timeout.timeout(0.006) { queue.pop }
          rescue Timeout::Error
            nil
          end
        },
        "mutex" => lambda {
          mutex = Thread::Mutex.new
          Async { mutex.synchronize { sleep 0.003; spin_until = now + 0.01; nil while now < spin_until } }
          begin
            Timeout.timeout(0.006) { mutex.synchronize { } }
          rescue Timeout::Error
            nil
          end
        },
        "threads" => lambda {
          queue = Thread::Queue.new
          Thread.new { sleep 0.001 + rand / 500; queue << 1 }
          queue.pop(timeout: 0.002)
        },
      }
      WAITS = {
        "sleep" => -> { sleep 0.05 },
        "queue" => -> { Thread::Queue.new.pop(timeout: 0.05) },
        "pipe" => -> { IO.pipe { |reader, _| reader.wait_readable(0.05) } },
        "process" => -> { system("sleep 0.05") },
        "thread" => -> { Thread.new { sleep 0.05 }.join },
      }
      run lambda { |env|
        _, race, wait = env["PATH_INFO"].split("/")
        RACES[race].call if race != "none"
        started = now
        WAITS.fetch(wait).call if wait
        [200, {}, [(now - started).to_s]]
      }
    RUBY

    def test_a_late_wake_up_ends_no_later_wait_of_the_same_request
      with_server(LATE) do |server|
        races = %w[queue sized-queue condition timeout mutex threads]
        %w[sleep queue pipe process thread].each do |wait|
          races.each { |race| assert_waited_in_full(burst(server, ["/#{race}/#{wait}"] * 2), "#{race}, then #{wait}") }
        end
      end
    end

    # One connection with both requests: the same fiber serves them, if it can, one right after the other.
    def test_a_late_wake_up_ends_no_wait_of_the_next_request
      with_server(LATE) do |server|
        %w[queue condition timeout mutex threads threads threads].each do |race|
          answers = Array.new(8) do
            Thread.new do
              text = server.exchange("GET /#{race} HTTP/1.1\r\nHost: a\r\n\r\n" \
                                     "GET /none/sleep HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
              text[/\A.*?\r\n\r\n[\d.e-]+(HTTP.*)\z/m, 1]
            end
          end
          assert_waited_in_full(answers.map { |thread| Answer.new(thread.value, 0) }, "#{race}, then the next request")
        end
      end
    end

    private

    def assert_woken_at_once(server)
      %w[/queue /condition /join /mutex].each do |way|
        assert_median_below(0.01, way, runs: 9) do
          answer = burst(server, [way], within: 2)[0]
          assert_equal 200, answer.status, "#{way}: not woken within 2 s"
          answer.body.to_f
        end
      end
    end

    def assert_waited_in_full(answers, what)
      answers.each do |answer|
        assert_equal 200, answer.status, what
        assert_operator answer.body.to_f, :>, 0.045, what
      end
    end
  end
end
