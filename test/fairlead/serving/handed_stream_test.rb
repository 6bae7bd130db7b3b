# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # A callable body that hands its stream on and returns: the response ends when the stream is closed, or when nobody is left
  # who could close it.
  class HandedStreamTest < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      HUB = Thread::Queue.new
      KEPT = []
      $finished = []

      WAYS = {
        "/thread" => ->(stream) { Thread.new { sleep 0.2; stream.write("x"); stream.close } },
        "/start" => ->(stream) { Thread.start(stream) { |out| sleep 0.1; out << "x"; out.close }; nil },
        "/subclass" => ->(stream) { Class.new(Thread).new { sleep 0.1; stream << "x"; stream.close }; nil },
        "/both" => ->(stream) { go = Queue.new; stream << "a"; Thread.new { go.pop; sleep 0.1; stream << "b"; stream.close }; stream << "c"; go << 1 },
        "/grandchild" => ->(stream) { Thread.new { Thread.new { sleep 0.2; stream << "x"; stream.close } } },
        "/task" => ->(stream) { Async { sleep 0.1; stream << "x"; stream.close } },
        "/task-thread" => ->(stream) { Async { Thread.new { sleep 0.2; stream << "x"; stream.close } } },
        "/fiber" => ->(stream) { Fiber.schedule { sleep 0.1; stream << "x"; stream.close } },
        "/hub" => ->(stream) { $hub ||= nil; HUB << stream },
        "/offload" => ->(stream) { Thread.new { stream << Fairlead.offload { "x" }; stream.close } },
        "/two" => ->(stream) { go = Queue.new; Thread.new { sleep 0.1; stream << "0"; go << 1 }; Thread.new { go.pop; sleep 0.1; stream << "1" } },
        "/left-open" => ->(stream) { Thread.new { sleep 0.1; stream << "x" } },
        "/open" => ->(stream) { stream << "x" },
        "/open-waits" => ->(stream) { sleep 0.01 },
        "/nothing" => ->(_) {},
        "/dropped" => ->(stream) { KEPT << Thread.new { stream << "x"; stream = nil; 20.times { sleep 0.1; GC.start } }; nil },
        "/dies" => ->(stream) { Thread.new { Thread.current.report_on_exception = false; stream << "x"; stream.flush; raise "on purpose" } },
        "/killed" => ->(stream) { Thread.new { stream << "x"; sleep }.tap { |one| Thread.new { sleep 0.1; one.kill } } },
        "/task-dies" => ->(stream) { Async { stream << "x"; stream.flush; sleep 0.05; raise "on purpose" } },
        "/endless" => ->(stream) { Thread.new { loop { stream << "x"; sleep 0.01 } } }
      }
      run lambda { |env|
        $hub ||= Thread.new { loop { one = HUB.pop; sleep 0.1; one << "x"; one.close } }
        path = env["PATH_INFO"]
        next [200, {}, [$finished.join(" ")]] if path == "/finished"
        next [200, {}, [Fairlead.stats[:workers].sum { |worker| worker[:streams] }.to_s]] if path == "/streams"

        env["rack.response_finished"] << ->(*) { $finished << path }
        [200, { "content-type" => "text/plain" }, WAYS.fetch(path)]
      }
    RUBY

    { "/thread" => "x", "/start" => "x", "/subclass" => "x", "/both" => "acb", "/grandchild" => "x", "/task" => "x", "/task-thread" => "x",
      "/fiber" => "x", "/hub" => "x", "/offload" => "x", "/two" => "01", "/left-open" => "x", "/open" => "x", "/open-waits" => "",
      "/nothing" => "", "/dropped" => "x" }.each do |path, body|
      define_method(:"test_the_response_has_all_of_#{path.delete("/").tr("-", "_")}") do
        connection = client(to: server)
        taken = duration { assert_equal body, connection.get(path).body }

        assert_operator taken, :<, 10
        assert_equal "x", connection.get("/open").body, "the connection goes on"
        eventually("its end") { server.get("/finished").body.split.include?(path) }
      end
    end

    # The client must see that it is not whole.
    %w[/dies /task-dies].each do |path|
      define_method(:"test_the_response_is_cut_off_where_#{path.delete("/").tr("-", "_")}") do
        connection = client(to: server).request("GET", path)
        rest = connection.rest

        assert_match(/\r\nx\r\n/, rest)
        refute_match(/\r\n0\r\n\r\n\z/, rest)
      end
    end

    def test_a_thread_that_is_killed_ends_the_response
      assert_equal "x", client(to: server).get("/killed").body
    end

    def test_a_client_that_goes_ends_what_writes_to_it
      connection = client(to: server).request("GET", "/endless")
      connection.read(100)
      connection.reset

      eventually("the end of the stream") { server.get("/finished").body.split.include?("/endless") }
    end

    def test_a_server_that_ends_does_not_wait_for_a_stream_that_nobody_closes
      with_server(APP, "--drain-timeout", "1", lint: false) do |server|
        client(to: server).request("GET", "/endless").read(100)

        assert_operator duration { assert_predicate server.stop, :success? }, :<, 15
      end
    end

    private

    def server = shared_server(APP)
  end
end
