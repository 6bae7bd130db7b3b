# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # An IO that is closed while somebody waits for it: the reader is told in that very wait, and nobody else is.
  class ClosedIOTest < Test
    APP = <<~'RUBY'
      require "socket"
      require "io/wait"
      require "timeout"
      def said
        yield.inspect
      rescue IOError => error
        "#{error.class}: #{error.message}"
      end
      # Waits in one fiber, and closes in another one, or in a thread, once so many wait.
      def closed_meanwhile(io, by, waiting: 1, &wait)
        closed = nil
        selector = Fiber.scheduler.selector
        waits = -> { [io, Fairlead::Platform.write_end(io)].uniq.sum { |one| [*selector.waiting_for(one)].size } }
        closer = -> { (sleep 0.001 until waits.call >= waiting); io.close; closed = true }
        task = by == "thread" ? Thread.new(&closer) : Async { closer.call }
        answer = said(&wait)
        by == "thread" ? task.join : task.wait
        [answer, said { sleep 0.002; :rested }, closed, io.closed?].join(" ")
      end
      WAITS = {
        "read" => ->(by) { r, _w = IO.pipe; closed_meanwhile(r, by) { r.read(1) } },
        "readpartial" => ->(by) { r, _w = UNIXSocket.pair; closed_meanwhile(r, by) { r.readpartial(1) } },
        "gets" => ->(by) { r, _w = IO.pipe; closed_meanwhile(r, by) { r.gets } },
        "wait_readable" => ->(by) { r, _w = IO.pipe; closed_meanwhile(r, by) { r.wait_readable } },
        "accept" => ->(by) { server = TCPServer.new("127.0.0.1", 0); closed_meanwhile(server, by) { server.accept } },
        "write" => ->(by) { _r, w = IO.pipe; closed_meanwhile(w, by) { w.write("x" * 1_000_000) } },
        "two" => lambda do |by|
          r, w = UNIXSocket.pair
          other = nil
          Fiber.schedule { other = said { r.write("x" * 10_000_000) } }
          first = closed_meanwhile(r, by, waiting: 2) { r.read(1) }
          other == first[/.*thread/] ? first : other
        end,
        "again" => lambda do |by|
          r, _w = IO.pipe
          closed_meanwhile(r, by) { said { r.read(1) }.then { |first| "#{first}, #{said { r.read(1) }}" } }
        end,
        "until_closed" => lambda do |by|
          r, _w = UNIXSocket.pair
          closed_meanwhile(r, by) do
            r.readpartial(1)
          rescue IOError
            r.closed? ? raise : retry
          end
        end,
        "many" => lambda do |by|
          r, _w = IO.pipe
          others = []
          20.times { Fiber.schedule { others << [said { r.read(1) }, said { r.read(1) }] } }
          closed_meanwhile(r, by, waiting: 21) { r.read(1) }.tap { |answer| return others.tally if others.tally.values != [20] }
        end,
        "popen_write" => lambda do |by|
          io = IO.popen("while echo; do sleep 0.1; done", "r+") # ends once nobody can read
          closed_meanwhile(io, by) { io.write("x" * 1_000_000) }
        end,
      }
      run(lambda do |env|
        _, wait, by = env["PATH_INFO"].split("/")
        answer = case wait
                 when "slow" then sleep(0.2) && "slow"
                 when "late" # what has come is read, and the close comes too late to be told
                   r, w = IO.pipe
                   closer = Thread.new { sleep 0.0005; w.write("x"); r.close }
                   said { r.read(1) }.tap { |answer| closer.join if answer != '"x"' }
                 when "thread_reads"
                   r, _w = IO.pipe
                   reader = Thread.new { said { r.read(1) } }
                   sleep 0.001 until reader.stop?
                   r.close
                   reader.value
                 when "reopen"
                   r, _w = IO.pipe
                   other, w = IO.pipe
                   w.write("other")
                   Fiber.schedule { sleep 0.01; r.reopen(other) }
                   [said { r.readpartial(5) }, said { r.readpartial(5) }].join(", ")
                 when "reopened" # nothing is there to be read until somebody waits for it again
                   r, _w = IO.pipe
                   read = lambda do
                     Timeout.timeout(5) { r.readpartial(5) }
                   rescue IOError
                     retry
                   end
                   Array.new(2) do |number|
                     other, w = IO.pipe
                     reader = Async { read.call }
                     sleep 0.001 until Fiber.scheduler.selector.waiting_for(r)
                     r.reopen(other)
                     other.close
                     sleep 0.001 until Fiber.scheduler.selector.waiting_for(r)
                     w.write(number.to_s)
                     reader.wait
                   end.join(", ")
                 when "half" # a child process' input ends, and its output goes on
                   io = IO.popen("cat", "r+")
                   Fiber.schedule { sleep 0.01; io.write("half"); io.close_write }
                   [said { io.read }, said { io.close }].join(", ")
                 when "twice"
                   io = IO.popen("cat", "r+")
                   r, w = IO.pipe
                   [io, io, r, r, w, w].map { |each| said { each.close } }.uniq.join(", ")
                 when "interrupted" # twice, while a close waits until the reader has let go
                   r, _w = IO.pipe
                   steps = []
                   reader = Async { steps << said { r.read(1) } }
                   sleep 0.001 until Fiber.scheduler.selector.waiting_for(r)
                   closer = Async do
                     2.times { |i| steps << said { i.zero? ? r.close : sleep } }
                   end
                   %w[first second].each { |word| closer.fiber.raise(IOError, word) }
                   [reader, closer].each(&:wait)
                   steps.join(", ")
                 when "deadline" # is due when the close has to wait for the thread
                   r, _w = IO.pipe
                   reader = Thread.new { said { r.read(1) } }
                   sleep 0.001 until reader.stop?
                   closer = said do
                     Timeout.timeout(0.01) do
                       began = Process.clock_gettime(1)
                       nil until Process.clock_gettime(1) - began > 0.03
                       r.close
                     end
                   rescue Timeout::Error => error
                     error.class
                   end
                   [closer, r.closed?, reader.value].join(" ")
                 when "fork"
                   r, _w = IO.pipe
                   Fiber.schedule { r.read(1) rescue nil }
                   Process.wait(fork { began = Process.clock_gettime(1); r.close; exit!(Process.clock_gettime(1) - began < 0.9) })
                   r.close
                   $?.success?
                 when "woken" # how often a wait without a limit looks whether it is over
                   mutex, condition, looks = Mutex.new, ConditionVariable.new, 0
                   Fiber.schedule { sleep 0.1; mutex.synchronize { condition.signal; $over = true } }
                   mutex.synchronize { until $over; condition.wait(mutex); looks += 1; end }
                   looks
                 else WAITS.fetch(wait).call(by)
                 end
        [200, {}, [answer.to_s]]
      end)
    RUBY

    TOLD = "IOError: stream closed in another thread :rested true true"

    def server = shared_server(APP, lint: false)

    %w[read readpartial gets wait_readable accept write two popen_write].each do |wait|
      %w[fiber thread].each do |by|
        define_method("test_who_waits_in_#{wait}_is_told_when_a_#{by}_closes") do
          beside = Thread.new { server.get("/slow").body }
          assert_equal TOLD, server.get("/#{wait}/#{by}").body
          assert_equal "slow", beside.value
        end
      end
    end

    %w[fiber thread].each do |by|
      define_method("test_who_reads_again_while_a_#{by}_closes_finds_it_closed") do
        assert_equal "\"#{TOLD[/.*thread/]}, IOError: closed stream\" :rested true true", server.get("/again/#{by}").body
        assert_equal "IOError: closed stream :rested true true", server.get("/until_closed/#{by}").body
      end

      define_method("test_all_who_wait_are_told_when_a_#{by}_closes") do
        assert_equal TOLD, server.get("/many/#{by}").body
      end
    end

    def test_who_reads_again_while_it_is_reopened_reads_the_other_file
      assert_equal "#{TOLD[/.*thread/]}, \"other\"", server.get("/reopen").body
    end

    def test_who_waits_again_for_what_was_reopened_is_woken
      assert_equal "0, 1", server.get("/reopened").body
    end

    def test_the_output_of_a_child_process_goes_on_when_its_input_is_closed
      assert_equal '"half", nil', server.get("/half").body
    end

    def test_what_is_closed_may_be_closed_again
      assert_equal "nil", server.get("/twice").body
    end

    def test_a_close_that_is_interrupted_waits_for_readers_nevertheless
      assert_equal "#{TOLD[/.*thread/]}, IOError: first, IOError: second", server.get("/interrupted").body
    end

    # Ruby would lose track of the thread: it crashed (3.3), or waited for ever (4.0).
    def test_a_deadline_waits_for_the_end_of_a_close
      told = TOLD[/.*thread/]
      answers = Array.new(20) { server.get("/deadline").body }
      assert_empty answers.uniq - ["Timeout::Error true #{told}", "nil true #{told}"]
      assert_includes answers, "Timeout::Error true #{told}"
    end

    def test_a_close_that_comes_too_late_reaches_no_later_wait
      answers = Array.new(60) { server.get("/late").body }
      assert_empty answers.uniq - ['"x"', "IOError: stream closed in another thread", "IOError: closed stream"]
      assert_equal "slow", server.get("/slow").body
    end

    def test_a_request_closes_what_a_thread_reads
      assert_equal "IOError: stream closed in another thread", server.get("/thread_reads").body
    end

    def test_a_child_process_closes_its_own_copy_at_once
      assert_equal "true", server.get("/fork").body
    end

    def test_a_condition_wakes_who_waits_once
      assert_equal "1", server.get("/woken").body
    end

    def test_nothing_is_said_of_experimental_features
      server.get("/read/fiber")
      refute_includes server.log, "experimental"
    end
  end
end
