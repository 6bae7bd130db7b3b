# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # A thread that a request has started raises into "its" thread, as a client does whose reader notices that the connection is lost.
  # Covers fiber_safety/thread_parent.rb, fiber_safety/bare_thread.rb
  class ThreadParentTest < Test
    APP = <<~'RUBY'
      class Lost < StandardError; end
      class Mark; end
      THREADS = []
      STARTS = -> { Thread.new { sleep } }
      ENDED = Hash.new { |ended, key| ended[key] = Queue.new }
      STARTED = Queue.new

      def lost(name, parent = Thread.current) = Thread.new { sleep 0.02; parent.raise(Lost, name) }

      def rescued
        yield
        "nothing is raised"
      rescue Lost => error
        error.message
      end

      WAITS = {
        "queue" => -> { Queue.new.pop }, "sleep" => -> { sleep }, "join" => -> { Thread.new { sleep }.join },
        "pipe" => -> { IO.pipe.then { |reader, writer| reader.read && writer } },
        "condition" => -> { Mutex.new.then { |lock| lock.synchronize { ConditionVariable.new.wait(lock) } } },
        "enumerator" => -> { Enumerator.new { |all| all << Queue.new.pop }.next }, "task" => -> { Async { Queue.new.pop }.wait }
      }
      run(lambda do |env|
        _, way, name = env["PATH_INFO"].split("/")
        said = case way
               when *WAITS.keys then rescued { lost(name) && WAITS.fetch(way).call }
               when "started"
                 %w[new start fork].map do |how|
                   parent = Thread.current
                   rescued { Thread.public_send(how) { Thread.new { sleep 0.01; parent.raise(Lost, how) }.join } && sleep }
                 end.join(" ")
               when "of_a_task" then Async { rescued { lost(name) && sleep } }.wait
               when "awaited" then parent = Thread.current; rescued { Thread.new { parent.raise(Lost, name) }.join }
               when "value" then parent = Thread.current; rescued { Thread.new { parent.raise(Lost, name) }.value }
               when "ended"
                 parent = Thread.current
                 thread = Thread.new { parent.raise(Lost, name) }
                 Thread.pass while thread.alive?
                 rescued { thread.join }
               when "message"
                 begin
                   parent = Thread.current
                   Thread.new { parent.raise("its text") } && sleep
                 rescue RuntimeError => error
                   error.message
                 end
               when "masked"
                 inside = nil
                 rescued { Thread.handle_interrupt(Lost => :never) { lost(name).join; sleep 0.01; inside = "inside" } } + " #{inside}"
               when "wakeup" then parent = Thread.current; Thread.new { sleep 0.02; parent.wakeup } && sleep && "woken"
               when "late"
                 parent = Thread.current
                 Thread.new { STARTED.push(ENDED[name].pop); rescued { parent.raise(Lost, name) }; STARTED.push(name) }
                 "over"
               when "main" then 100.times { Thread.main.raise(Lost, name) } && sleep(0.1) && Process.pid.to_s
               when "storage" then sleep(0.1) && Fiber.current.storage.to_h.inspect
               when "ractor"
                 Warning[:experimental] = false
                 ractor = Ractor.new { [Thread.new { Thread.pass }, Thread.start { 1 }, Thread.fork { 2 }].sum { |thread| thread.join.value.to_i } }
                 (ractor.respond_to?(:value) ? ractor.value : ractor.take).to_s
               when "leave"
                 mark = Mark.new
                 Async { THREADS.push(STARTS.call) && sleep(0.001) && mark }.wait
                 "left"
               when "marks" then 3.times { GC.start } && ObjectSpace.each_object(Mark).count.to_s
               when "tell" then ENDED[name].push(1); STARTED.pop && STARTED.pop && rescued { sleep 0.05 }
               end
        [200, {}, [said]]
      end)
    RUBY

    def server = shared_server(APP)

    %w[queue sleep join pipe condition enumerator task of_a_task awaited value ended].each do |way|
      define_method("test_each_of_many_requests_gets_what_its_own_thread_raises_#{way}") do
        answers = Array.new(12) { |number| Thread.new { server.get("/#{way}/#{number}").body } }.map { |thread| thread.join(30)&.value }

        assert_equal Array.new(12, &:to_s), answers
      end
    end

    def test_threads_are_started_in_several_ways_and_start_others
      assert_equal "new start fork", server.get("/started").body
    end

    def test_a_ractor_starts_threads
      assert_equal "3", server.get("/ractor").body
    end

    def test_a_text_is_a_runtime_error
      assert_equal "its text", server.get("/message").body
    end

    def test_a_mask_holds_it_back
      assert_equal "7 inside", server.get("/masked/7").body
    end

    def test_a_thread_wakes_the_sleep_of_the_request_that_has_started_it
      assert_equal "woken", server.get("/wakeup").body
    end

    def test_the_main_thread_goes_on_whatever_is_raised_there
      pid = server.get("/main/1").body

      assert_equal [pid] * 3, Array.new(3) { |number| server.get("/main/#{number}").body }
    end

    # What the server's own threads would remember, all serving fibers would inherit.
    def test_a_request_begins_without_a_parent
      answers = Array.new(12) { Thread.new { server.get("/storage").body } }.map { |thread| thread.join(30)&.value }

      assert_equal ["{}"] * 12, answers
    end

    def test_a_thread_that_stays_keeps_nothing_of_a_task_that_has_ended
      20.times { assert_equal "left", server.get("/leave").body }

      assert_operator Integer(server.get("/marks").body), :<, 10
    end

    def test_a_request_gets_nothing_from_the_thread_of_an_earlier_one
      assert_equal "over", server.get("/late/1").body
      assert_equal "nothing is raised", server.get("/tell/1").body
      assert_includes server.log, "Another thread raises this in one that serves: nobody gets it."
    end
  end
end
