# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # Several fibers or threads that write to one response: each that waits for room is woken, whatever the others do.
  class TwoWritersTest < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      require "async"
      # Who waits looks again after a second. Not here: a wake-up that is lost stays lost.
      Thread::Queue.prepend(Module.new { def pop(*arguments, timeout: nil) = timeout == 1 ? super(*arguments) : super })

      SIZE = 8_000_000
      $waiting, $told = 0, []
      # A writer that does not end before its client reads.
      write = lambda do |stream, letter = "x"|
        $waiting += 1
        stream.write(letter * SIZE)
      rescue Exception => error
        $told << error.class.name
        raise
      ensure
        $waiting -= 1
      end
      beats = lambda do |stream, start|
        done = false
        beat = start.call { until done; sleep 0.002; stream.write("h") unless done; end }
        write.call(stream)
        done = true
        beat.is_a?(Thread) ? beat.join : beat.wait
        stream.close
      end
      BODIES = {
        "/task" => ->(stream) { beats.call(stream, ->(&beat) { Async(&beat) }) },
        "/thread" => ->(stream) { beats.call(stream, ->(&beat) { Thread.new(&beat) }) },
        "/writers" => lambda do |stream|
          $told.clear
          $interrupt = Thread::Queue.new
          writers = %w[a b].map { |letter| Async { write.call(stream, letter) rescue nil } }
          thread = Thread.new { write.call(stream, "c") rescue nil }
          Async { $interrupt.pop&.call(writers.first) } # in this thread: another one may serve by then
          writers.each(&:wait)
          thread.join
          $interrupt.close
          stream.close
        end,
        "/fails" => lambda do |stream|
          $told.clear
          %w[a b].each { |letter| Async { write.call(stream, letter) rescue nil } }
          $fails = Thread::Queue.new
          $fails.pop
          raise "on purpose"
        end,
        "/closed" => lambda do |stream|
          $told.clear
          $closes = -> { stream.close }
          write.call(stream)
        end,
      }
      run(lambda do |env|
        case path = env["PATH_INFO"]
        when "/waiting" then [200, {}, [$waiting.to_s]]
        when "/told" then [200, {}, [$told.join(" ")]]
        when "/cancel" then $interrupt << ->(writer) { writer.cancel }; [200, {}, ["done"]]
        when "/raise" then $interrupt << ->(writer) { Fiber.scheduler.raise(writer.fiber, IOError, "on purpose") }; [200, {}, ["done"]]
        when "/fail" then $fails << true; [200, {}, ["done"]]
        when "/close" then $closes.call; [200, {}, ["done"]]
        else [200, {}, BODIES.fetch(path)]
        end
      end)
    RUBY
    SIZE = 8_000_000
    # Less than a writer writes at once.
    FLAGS = %w[--response-buffer 100000].freeze

    def client = super(timeout: 15)

    def server = @server ||= shared_server(APP, *FLAGS, lint: false)

    %w[task thread].each do |way|
      define_method(:"test_a_#{way}_that_writes_a_little_meanwhile_takes_no_wake_up_from_who_waits") do
        body = read_slowly(client.request("GET", "/#{way}"))
        assert_equal SIZE, body.count("x")
        assert_operator body.count("h"), :>, 0
      end
    end

    def test_all_who_wait_are_woken_when_there_is_room
      body = read_slowly(waiting_writers)
      assert_equal [SIZE] * 3, %w[a b c].map { |letter| body.count(letter) }
    end

    { "/cancel" => "Async::Cancel", "/raise" => "IOError" }.each do |way, error|
      define_method(:"test_after_#{way.delete("/")}_of_one_the_others_are_woken") do
        reader = waiting_writers
        server.get(way)
        eventually("it is told") { server.get("/told").body == error }
        body = read_slowly(reader)
        assert_equal [SIZE] * 2, %w[b c].map { |letter| body.count(letter) }
        assert_operator body.count("a"), :<, SIZE
      end
    end

    [[], %w[--no-cancel-abandoned]].each do |flags|
      define_method(:"test_all_are_told_that_the_client_has_gone#{"_where_nothing_is_cancelled" if flags.any?}") do
        @server = shared_server(APP, *FLAGS, *flags, name: :"server#{flags.size}", lint: false)
        waiting_writers.reset
        eventually("none waits") { server.get("/waiting").body == "0" }
        assert_equal 3, server.get("/told").body.split.size
      end
    end

    def test_who_waits_is_told_that_another_has_closed_the_stream
      reader = client.request("GET", "/closed")
      eventually_waiting(1)
      server.get("/close")
      eventually("it is told") { server.get("/told").body.split.size == 1 }
      assert_operator read_slowly(reader).size, :<, SIZE
    end

    def test_those_who_wait_are_told_that_the_body_has_failed
      client.request("GET", "/fails")
      eventually_waiting(2)
      server.get("/fail")
      eventually("none waits") { server.get("/waiting").body == "0" }
      assert_equal "IOError IOError", server.get("/told").body
    end

    private

    def waiting_writers
      client.request("GET", "/writers").tap { eventually_waiting(3) }
    end

    # Once they have begun, some turns are enough for them to wait.
    def eventually_waiting(count)
      eventually("#{count} wait") { server.get("/waiting").body == count.to_s }
      3.times { server.get("/waiting") }
    end

    # @return [String] the bodies of all chunks.
    def read_slowly(client)
      nil until client.line.empty?
      body = +""
      deadline = monotonic + 60
      until (size = client.line.hex).zero?
        flunk "a writer is left waiting: #{body.bytesize} bytes" if monotonic > deadline # another goes on for ever
        body << client.read(size)
        client.line
        sleep 0.001
      end
      body
    end
  end
end
