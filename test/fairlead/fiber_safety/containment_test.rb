# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # Whatever an app raises, and wherever: that request or task ends, and nothing else does.
  class ContainmentTest < Test
    APP = <<~'RUBY'
      require "async"
      require "timeout"
      def deep(n) = deep(n + 1) + 1

      WAYS = {
        "not_implemented" => -> { raise NotImplementedError, "abstract" }, "exit" => -> { exit }, "abort" => -> { abort },
        "interrupt" => -> { raise Interrupt }, "signal" => -> { raise SignalException, "TERM" },
        "memory" => -> { raise NoMemoryError }, "stack" => -> { deep(0) }, "throw" => -> { throw :done },
        "exception" => -> { raise Exception, "any" }, "thread_exit" => -> { Thread.exit },
        "thread_kill" => -> { Thread.current.kill }, "kill_thread" => -> { Thread.kill(Thread.current) },
        "fiber_kill" => -> { Fiber.current.kill }
      }
      object = lambda do |**methods|
        Object.new.tap { |object| methods.each { |name, block| object.define_singleton_method(name, &block) } }
      end
      PLACES = {
        "task" => ->(way) { Async(&way).wait },
        "task_that_waited" => ->(way) { Async { sleep 0.001; way.call }.wait },
        "task_left_behind" => ->(way) { Async { sleep 0.001; way.call } },
        "task_of_a_task" => ->(way) { Async { |task| task.async { |child| child.async { sleep 0.001; way.call } } } },
        "scheduled" => ->(way) { Fiber.schedule { sleep 0.001; way.call } },
        "fiber" => ->(way) { Fiber.new(&way).resume },
        "fiber_of_the_loop" => ->(way) { Fiber.scheduler.push(Fiber.new(blocking: false, &way)) },
        "enumerator" => ->(way) { Enumerator.new { |yielder| way.call; yielder << 1 }.next },
        "timer" => ->(way) { Fiber.scheduler.after(0.001, &way) },
        "ready_list" => ->(way) { Fiber.scheduler.unblock(nil, object.(alive?: -> { true }, transfer: ->(*) { way.call })) },
        "idle_fiber" => ->(_) { fiber = Fiber.current; Fiber.scheduler.after(0.002) { fiber.raise(NotImplementedError) } },
        "request" => :call.to_proc,
        "offload" => ->(way) { Fairlead.offload(&way) },
      }
      run(lambda do |env|
        _, place, way = env["PATH_INFO"].split("/")
        way = WAYS[way]
        case place
        when "slow" then Async { sleep(env["QUERY_STRING"].to_f) }.wait
        when "pid" then next [200, {}, [Process.pid.to_s]]
        when "response_finished" then (env["rack.response_finished"] ||= []).push(->(*) { $finished = true }, ->(*) { way.call })
        when "body" then next [200, {}, object.(each: ->(&block) { block.call("x"); sleep 0.001; way.call })]
        when "close" then next [200, {}, object.(each: ->(&block) { block.call("x") }, close: way)]
        when "stream" then next [200, {}, ->(stream) { stream.write("x"); sleep 0.001; way.call }]
        when "raise_from_thread" then thread = Thread.current; Thread.new { thread.raise(NotImplementedError) }.join
        when "kill_from_thread"
          thread = Thread.current
          Thread.new { thread.kill }.join
          sleep 0.01
          next [200, {}, [thread.object_id.to_s]]
        when "block"
          Fiber.blocking do
            File.write("blocked", "")
            sleep 0.01 until File.exist?("unblocked")
          end
        when "set_scheduler" then Fiber.set_scheduler(env["QUERY_STRING"].empty? ? nil : Async::Scheduler.new(nil))
        when "clean_up"
          ($steps = []) && (env["rack.response_finished"] ||= []).push(->(*) { sleep 0.001; $steps << :finished })
          begin
            Thread.exit
          ensure
            Fairlead::Uninterruptible.run { sleep 0.001; $steps << :section }
            sleep 0.001
            $steps << :waited
          end
        when "own_cause" then raise Class.new(StandardError) { def cause = self }, "on purpose"
        when "steps" then next [200, {}, [$steps.inspect]]
        when "wait_for_killed" then next [200, {}, [Async { sleep 0.001; Thread.exit }.wait.inspect]]
        when "rescue" then begin; Async { sleep 0.001; exit 3 }.wait; rescue SystemExit => error; next [200, {}, [error.status.to_s]]; end
        when "finished" then next [200, {}, [$finished.inspect]]
        else PLACES.fetch(place).call(way)
        end
        [200, {}, ["ok"]]
      end)
    RUBY

    WAYS = APP.scan(/"(\w+)" => ->? \{/).flatten
    PLACES = [*APP[/PLACES = .*?\n}/m].scan(/^  "(\w+)"/).flatten, "response_finished", "body", "close", "stream",
              "raise_from_thread"].freeze

    def server = shared_server(APP, lint: false)

    def setup
      super
      @pid = server.get("/pid").body
    end

    PLACES.each do |place|
      define_method("test_what_ends_in_#{place}_ends_nothing_else") do
        beside = Thread.new { server.get("/slow?0.5").body }
        sleep 0.05
        WAYS.each { |way| end_in(place, way) }
        sleep 0.02
        assert_equal "ok", server.get("/slow?0.001").body
        assert_equal "ok", beside.value
        assert_equal @pid, server.get("/pid").body
      end
    end

    def test_a_request_that_exits_is_answered_500_as_elsewhere
      %w[exit abort interrupt not_implemented stack throw].each { |way| assert_equal "500", server.get("/request/#{way}").code }
    end

    def test_an_error_may_have_a_cause_of_its_own
      assert_equal "500", server.get("/own_cause").code
    end

    def test_thread_exit_lets_clean_ups_wait_as_in_a_thread
      assert_equal "500", server.get("/clean_up").code
      eventually("it is over") { server.get("/steps").body == "[:section, :waited, :finished]" }
    end

    def test_the_exception_is_logged
      server.get("/task_left_behind/not_implemented")
      eventually("the log") { server.log.include?('"NotImplementedError","message":"abstract"') }
    end

    def test_who_waits_for_a_task_gets_its_exception
      assert_equal "3", server.get("/rescue").body
      assert_equal "500", server.get("/task_that_waited/exit").code
    end

    def test_who_waits_for_a_task_whose_fiber_is_killed_goes_on
      assert_equal "nil", server.get("/wait_for_killed").body
    end

    def test_a_thread_that_serves_is_not_killed_by_another_one
      with_server(APP, lint: false) do |server|
        pid = server.get("/pid").body
        first = server.get("/kill_from_thread").body
        blocking = Thread.new { server.get("/block").body }
        eventually("it blocks") { File.exist?(server.path("blocked")) } # a request that sleeps in its thread would wait for it
        eventually("another thread leads") { server.get("/kill_from_thread").body != first }
        File.write(server.path("unblocked"), "")
        assert_equal "ok", blocking.value
        assert_equal pid, server.get("/pid").body
      end
    end

    def test_no_request_replaces_the_scheduler_of_all
      beside = Thread.new { server.get("/slow?0.5").body }
      sleep 0.05
      2.times { |i| assert_equal "500", server.get("/set_scheduler#{"?other" if i == 1}").code }
      assert_equal "ok", beside.value
      assert_equal @pid, server.get("/pid").body
    end

    def test_the_other_callbacks_run_if_one_kills_its_fiber
      assert_equal "200", server.get("/response_finished/fiber_kill").code
      eventually("the other callback") { server.get("/finished").body == "true" }
    end

    private

    # What ends without a response, or within its body, closes the connection.
    def end_in(place, way)
      server.get("/#{place}/#{way}")
    rescue EOFError
      nil
    end
  end
end
