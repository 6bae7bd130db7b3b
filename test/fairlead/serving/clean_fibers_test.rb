# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../burst"

module Fairlead
  # What a request leaves on its fiber is gone before the next one; what it raises ends it alone; and fibers that a
  # burst needed go again.
  # Covers fiber_safety/cleanup.rb, serving/idle_fibers.rb, serving/serving_fiber.rb
  class CleanFibersTest < Test
    include Burst

    LEAKS = <<~'RUBY'
      $leaks = []
      $served = 0

      # Each request looks for what others have left, and leaves more.
      run lambda { |env|
        number = ($served += 1)
        # What a gem has stored while it was loaded is inherited.
        leaks = Thread.current.keys + (Fiber.current.storage || {}).keys.grep(/\A(tenant|whole|child|part|late)/)
        leaks << Fiber[:tenant] << Thread.current[:user]
        $leaks.concat(leaks.compact.first(3)) unless leaks.compact.empty?
        Thread.current[:user] = Thread.current["user#{number % 7}"] = number
        Thread.current[:stack] = []
        Fiber[:tenant] = number
        Fiber.current.storage = { "whole#{number % 5}".to_sym => 1 } if number % 11 == 0
        case number % 5
        when 0 then sleep 0.001
        when 1 then Async { Fiber[:child] = 1; Thread.current[:child] = 2; sleep 0.001 }
        when 2 then Async { Thread.current[:waited] = 2; sleep 0.001 }.wait
        when 3 then raise "on purpose" if number % 3 == 0
        end
        $leaks << "changed meanwhile" unless Thread.current[:user] == number
        case env["PATH_INFO"]
        when "/leaks" then [200, {}, ["#{$served} #{$leaks.inspect}"]]
        when "/each" then [200, {}, Enumerator.new { |parts| 3.times { Fiber[:part] = Thread.current[:part] = 1; parts << "x" } }]
        when "/finished"
          env["rack.response_finished"] << ->(*) { Fiber[:late] = Thread.current[:late] = 1 }
          [200, {}, ["finished"]]
        else [200, {}, ["hello"]]
        end
      }
    RUBY

    VARIABLES = <<~'RUBY'
      def variables = Thread.current.thread_variables.to_h { |name| [name, Thread.current.thread_variable_get(name)] }
      run lambda { |env|
        found = [variables]
        Thread.current.thread_variable_set("user", env["QUERY_STRING"])
        sleep 0.02
        found << variables << Async { variables }.wait << Enumerator.new { |all| all << variables }.next
        found << Fairlead.offload { variables } << Thread.current.thread_variable?(:user)
        # The thread that has loaded the app serves no requests.
        found << Thread.new { variables }.value << Thread.main.thread_variable_get(:before)
        # As a class does that is loaded in a request, for those that come later.
        Thread.main.thread_variable_set(:loaded, 2) unless Thread.main.thread_variable?(:loaded)
        found << Thread.main.thread_variable_get("loaded")
        Thread.current.thread_variable_set(:user, nil)
        [200, {}, [(found << variables).inspect]]
      }
      Thread.current.thread_variable_set(:before, 1)
    RUBY

    # What each sees of ActiveSupport's isolated state.
    ISOLATED = <<~'RUBY'
      require "active_support"
      require "active_support/isolated_execution_state"
      STATE = ActiveSupport::IsolatedExecutionState
      def see = STATE[:number]
      def see_in_fibers = [see, Enumerator.new { |all| sleep 0.001; all << see }.next, Fiber.new { see }.resume]
      run(lambda do |env|
        STATE[:number] = number = env["QUERY_STRING"]
        seen = [see_in_fibers, Fairlead.offload { see_in_fibers }, Enumerator.new { |all| all << Fairlead.offload { see } }.next]
        seen << Thread.new { STATE[:number] = "thread"; [*see_in_fibers, *Sync { STATE[:number] = "its task"; see_in_fibers }, see] }.value
        seen << Async { STATE[:number] = "task"; [*see_in_fibers, *Fairlead.offload { see_in_fibers }] }.wait
        seen << Fiber.new { Async { see_in_fibers }.wait }.resume
        [200, {}, [(seen << see_in_fibers).flatten.chunk_while { |one, other| one == other }.map { |same| [same.first, same.size] }.inspect]]
      end)
    RUBY

    def test_fibers_that_are_no_tasks_share_the_state_of_those_that_run_them
      with_server(ISOLATED) do |server|
        burst(server, (1..40).map { |number| "/?#{number}" }).each.with_index(1) do |answer, number|
          expected = [[number.to_s, 7], ["thread", 3], ["its task", 3], ["thread", 1], ["task", 6], [nil, 3], [number.to_s, 3]]

          assert_equal expected.inspect, answer.body
        end
      end
    end

    def test_a_request_has_thread_variables_of_its_own
      with_server(VARIABLES) do |server|
        answers = burst(server, (1..50).map { |number| "/?#{number}" }) + burst(server, ["/?51"])
        answers.each.with_index(1) do |answer, number|
          own = { user: number.to_s }
          assert_equal [{}, own, own, own, own, true, {}, 1, 2, {}].inspect, answer.body
        end
      end
    end

    def test_ten_thousand_mixed_requests_leave_nothing_behind
      with_server(LEAKS, "--queue-target", "0") do |server|
        clients = Array.new(20) do |client|
          Thread.new do
            server.connect do |socket|
              paths = %w[/hello /each /finished /hello].rotate(client)
              500.times { |i| socket.write("GET #{paths[i % 4]} HTTP/1.1\r\nHost: a\r\n\r\n") and skip_answer(socket) }
            end
          end
        end
        clients.each(&:join)
        text = ""
        eventually("an answer that was not raised") { (text = server.get("/leaks")).code == "200" }
        served, leaks = text.body.split(" ", 2)
        assert_operator served.to_i, :>, 10_000
        assert_equal "[]", leaks
      end
    end

    ERRORS = <<~'RUBY'
      ODD = Class.new(Exception) { def message = raise("no message either") }
      def deep(n) = n.zero? ? 0 : 1 + deep(n - 1)

      WAYS = {
        "/standard" => -> { raise "standard" },
        "/exception" => -> { raise Exception, "exception" },
        "/exit" => -> { exit },
        "/exit-1" => -> { exit 1 },
        "/abort" => -> { abort "aborted" },
        "/no-memory" => -> { raise NoMemoryError, "no memory" },
        "/deep" => -> { deep(10_000_000) },
        "/throw" => -> { throw :somewhere },
        "/interrupt" => -> { raise Interrupt },
        "/signal" => -> { raise SignalException, "TERM" },
        "/script" => -> { eval("1 +") },
        "/security" => -> { raise SecurityError },
        "/stop-iteration" => -> { raise StopIteration },
        "/break" => -> { proc { break }.call },
        "/frozen" => -> { raise RuntimeError.new("frozen").freeze },
        "/odd" => -> { raise ODD },
        "/fiber" => -> { Fiber.yield },
        "/client-gone" => -> { raise Fairlead::InvalidResponse },
        "/nil" => -> { nil },
        "/status" => -> { ["x", {}, []] },
        "/headers" => -> { [200, { "a" => "b\u0000c" }, []] },
        "/header-name" => -> { [200, { "a b" => "c" }, []] },
        "/body" => -> { [200, {}, nil] },
        "/parts" => -> { [200, {}, [1]] },
        "/each" => -> { [200, {}, Enumerator.new { raise "in each" }] },
        "/call" => -> { [200, {}, ->(stream) { raise Exception, "in call" }] },
        "/timeout" => -> { Timeout.timeout(0.01) { sleep 1 } },
      }
      BAD_CLOSE = Class.new { def each = yield("fine"); def close = raise(Exception, "in close") }
      run lambda { |env|
        case path = env["PATH_INFO"]
        when "/hello" then sleep 0.01; [200, {}, [Process.pid.to_s]]
        when "/close" then [200, {}, BAD_CLOSE.new]
        when "/finished" then env["rack.response_finished"] << ->(*) { raise Exception } << ->(*) { exit }; [200, {}, ["fine"]]
        else WAYS.fetch(path).call
        end
      }
    RUBY

    def test_whatever_an_app_raises_the_answer_is_500_and_the_worker_lives_on
      with_server(ERRORS) do |server|
        worker = server.get("/hello").body
        paths = ERRORS.scan(%r{^ *"(/[a-z0-9-]+)" =>}).flatten
        assert_operator paths.size, :>, 20
        3.times do
          paths.each do |path|
            answer, other = burst(server, [path, "/hello"])
            assert_equal [path, 500], [path, answer.status]
            assert_equal [path, worker], [path, other.body]
          end
          assert_equal %w[fine fine], %w[/close /finished].map { |path| server.get(path).body }
        end
        assert_equal [worker.to_i], server.worker_pids
      end
    end

    def test_errors_are_told_once_each_with_method_and_path
      with_server(ERRORS) do |server|
        server.get("/exception?a=b")
        assert_equal 1, server.log.scan("fairlead: GET /exception: ").size
        assert_includes server.log, "exception (Exception)"
      end
    end

    BURST = <<~'RUBY'
      GATES = Hash.new { |gates, number| gates[number] = Thread::Queue.new }
      run lambda { |env|
        gate = GATES[env["QUERY_STRING"]]
        case env["PATH_INFO"]
        when "/wait" then gate.pop
        when "/waiting" then next [200, {}, [gate.num_waiting.to_s]]
        when "/open" then gate.close
        end
        # Of all threads: the lead may go from one to another.
        serving = ObjectSpace.each_object(Async::Task).count { |task| task.annotation == "serving" && task.alive? }
        [200, {}, [serving.to_s]]
      }
    RUBY

    def test_fibers_are_used_again_and_end_when_nobody_needs_them
      with_server(BURST) do |server|
        3.times { |round| assert_includes 300..320, fibers_of_burst(server, round), "a second burst needs no more than the first" }
        assert_operator server.get("/").body.to_i, :>=, 290, "they stay for a while"
        # Nothing happens meanwhile: no request comes that could have led to it.
        eventually("they have ended") { server.get("/").body.to_i <= 10 }
        assert_operator fibers_of_burst(server, 3), :>=, 300
      end
    end

    private

    # @return [Integer] how many fibers there are when three hundred requests wait at once.
    def fibers_of_burst(server, round)
      waiting = Thread.new { burst(server, ["/wait?#{round}"] * 300) }
      eventually("all wait") { server.get("/waiting?#{round}").body == "300" }
      fibers = server.get("/open?#{round}").body.to_i
      assert_each_equal 200, waiting.value, server, &:status
      fibers
    end

    def skip_answer(socket)
      head = +""
      head << socket.gets until head.end_with?("\r\n\r\n")
      if (length = head[/content-length: (\d+)/, 1])
        socket.read(length.to_i)
      else # in chunks
        nil until socket.gets == "0\r\n"
        socket.gets
      end
    end
  end
end
