# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # An IO that is closed while somebody waits for it: the reader is told in that very wait, and nobody else is.
  class ClosedIOTest < Test
    APP = <<~'RUBY'
      require "socket"
      require "io/wait"
      def said
        yield.inspect
      rescue IOError => error
        "#{error.class}: #{error.message}"
      end
      # Waits in one fiber, and closes in another one, or in a thread.
      def closed_meanwhile(io, by, &wait)
        closer = -> { sleep 0.01; io.close; $closed = true }
        task = by == "thread" ? Thread.new(&closer) : Fiber.schedule { closer.call }
        answer = said(&wait)
        by == "thread" ? task.join : sleep(0.005)
        [answer, said { sleep 0.002 }, $closed, io.closed?].join(" ")
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
          first = closed_meanwhile(r, by) { r.read(1) }
          other == first[/.*thread/] ? first : other
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
                   sleep 0.01
                   r.close
                   reader.value
                 when "fork"
                   r, _w = IO.pipe
                   Fiber.schedule { r.read(1) rescue nil }
                   began = Process.clock_gettime(1)
                   Process.wait(fork { r.close; exit!(0) })
                   seconds = Process.clock_gettime(1) - began
                   r.close
                   seconds < 0.9
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

    TOLD = "IOError: stream closed in another thread 0 true true"

    def server = shared_server(APP, lint: false)

    %w[read readpartial gets wait_readable accept write two].each do |wait|
      %w[fiber thread].each do |by|
        define_method("test_who_waits_in_#{wait}_is_told_when_a_#{by}_closes") do
          beside = Thread.new { server.get("/slow").body }
          assert_equal TOLD, server.get("/#{wait}/#{by}").body
          assert_equal "slow", beside.value
        end
      end
    end

    def test_a_close_that_comes_too_late_reaches_no_later_wait
      answers = Array.new(60) { server.get("/late").body }
      assert_empty answers.uniq - ['"x"', "IOError: stream closed in another thread"]
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
