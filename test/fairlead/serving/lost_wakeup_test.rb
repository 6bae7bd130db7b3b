# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # A waiter that is cancelled just as it is woken: Ruby wakes no other one in its place.
  class LostWakeupTest < Test
    APP = <<~'RUBY'
      # Two wait; the first is cancelled after it has been woken, and before it runs.
      WAITS = {
        "/mutex" => lambda do |cancelled, second|
          mutex = Mutex.new
          mutex.lock
          first = cancelled.call { mutex.synchronize { nil } }
          other = second.call { mutex.synchronize { :went_on } }
          mutex.unlock
          [first, other]
        end,
        "/queue" => lambda do |cancelled, second|
          queue = Queue.new
          first = cancelled.call { queue << queue.pop && sleep }
          other = second.call { queue.pop && :went_on }
          queue << true
          [first, other]
        end,
        "/condition" => lambda do |cancelled, second|
          mutex, condition = Mutex.new, ConditionVariable.new
          wait = ->(*) { mutex.synchronize { condition.wait(mutex) && condition.signal } }
          first = cancelled.call(&wait)
          other = second.call { wait.call && :went_on }
          mutex.synchronize { condition.signal }
          [first, other]
        end
      }.freeze

      run(lambda do |env|
        task = Async::Task.current
        start = task.method(:async)
        in_enumerator = ->(&wait) { task.async { Enumerator.new { |values| values << wait.call }.next } }
        first, other = WAITS.fetch(env["PATH_INFO"]).call(env["QUERY_STRING"] == "enumerator" ? in_enumerator : start, start)
        first.cancel
        answer = task.with_timeout(30) { other.wait } rescue "never"
        [200, { "content-type" => "text/plain" }, [answer.to_s]]
      end)
    RUBY
    # A stream waits for a time that no timer takes.
    STREAM = <<~'RUBY'
      POP = lambda do
        queue = Queue.new
        Async { Async::Task.current.yield; queue << true }
        began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        queue.pop(timeout: 50)
        (Process.clock_gettime(Process::CLOCK_MONOTONIC) - began).to_s
      end
      WAIT = lambda do |stream|
        Queue.new.pop(timeout: Float::NAN)
      rescue ArgumentError => error
        stream.write(error.message)
        stream.close
      end
      run ->(env) { [200, {}, env["PATH_INFO"] == "/stream" ? WAIT : [POP.call]] }
    RUBY
    private_constant :APP, :STREAM

    def test_a_fiber_whose_stream_could_not_wait_is_woken_in_later_requests
      with_server(STREAM, lint: false) do |server|
        assert_includes server.get("/stream").body, "finite"
        3.times { assert_operator server.get("/").body.to_f, :<, 40, "seconds" }
      end
    end

    def test_who_waits_behind_it_goes_on
      with_server(APP, lint: false) do |server|
        %w[/mutex /queue /condition].product(["", "?enumerator"]) do |path, where|
          assert_equal "went_on", server.get("#{path}#{where}").body, "#{path}#{where}"
        end
      end
    end
  end
end
