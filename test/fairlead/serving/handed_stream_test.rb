# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # A callable body that hands its stream on and returns: the response ends when the stream is closed, when the client has gone, or when
  # the server stops.
  class HandedStreamTest < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      require "weakref"
      HUB, GO = Thread::Queue.new, Thread::Queue.new
      JOBS = Thread::Queue.new
      Subscriber = Struct.new(:stream)
      $finished, $requests = [], []

      # Each pops GO, which /go feeds, before it ends the response.
      WAYS = {
        "/thread" => ->(stream) { Thread.new { GO.pop; stream.write("x"); stream.close } },
        "/start" => ->(stream) { Thread.start(stream) { |out| GO.pop; out << "x"; out.close }; nil },
        "/grandchild" => ->(stream) { Thread.new { Thread.new { GO.pop; stream << "x"; stream.close } } },
        "/task" => ->(stream) { Async { GO.pop; stream << "x"; stream.close } },
        "/task-thread" => ->(stream) { Async { Thread.new { GO.pop; stream << "x"; stream.close } } },
        "/fiber" => ->(stream) { Fiber.schedule { GO.pop; stream << "x"; stream.close } },
        "/offload" => ->(stream) { Thread.new { GO.pop; stream << Fairlead.offload { "x" }; stream.close } },
        "/hub" => ->(stream) { HUB << stream },
        "/begun" => ->(stream) { stream << "x"; HUB << stream },
        "/global" => ->(stream) { $kept = stream; Thread.new { GO.pop; $kept << "x"; $kept.close_write } },
        "/struct" => ->(stream) { HUB << Subscriber.new(stream); nil },
        "/pool" => ->(stream) { JOBS << -> { GO.pop; stream << "x"; stream.close } },
        "/collected" => ->(stream) { HUB << stream; 3.times { GC.start } },
        "/two" => ->(stream) { first = Thread.new { GO.pop; stream << "x" }; Thread.new { first.join; stream.close } },
        # They leave it open.
        "/open" => ->(stream) { stream << "x" },
        "/nothing" => ->(_) {},
        "/ended" => ->(stream) { Thread.new { stream << "x" } },
        "/dies" => ->(stream) { Thread.new { Thread.current.report_on_exception = false; stream << "x"; raise "on purpose" } },
        "/task-dies" => ->(stream) { Async { stream << "x"; raise "on purpose" } },
        "/endless" => ->(stream) { Thread.new { loop { stream << "x"; sleep 0.01 } rescue $told = $!.class.name } },
        "/raises" => ->(stream) { HUB << stream; raise "on purpose" },
      }
      work = lambda do
        one = HUB.pop
        one = one.stream if one.is_a?(Subscriber)
        GO.pop
        one << "x" rescue return
        one.close
      end
      run lambda { |env|
        $threads ||= [Thread.new { loop(&work) }, Thread.new { loop { JOBS.pop.call } }]
        path = env["PATH_INFO"]
        case path
        when "/go" then (GO << true; next [200, {}, []])
        when "/waiting" then next [200, {}, [GO.num_waiting.to_s]]
        when "/told" then next [200, {}, [$told.to_s]]
        when "/finished" then next [200, {}, [$finished.join(" ")]]
        when "/requests" then (GC.start; next [200, {}, [$requests.count(&:weakref_alive?).to_s]])
        when "/streams" then (GC.start; next [200, {}, [Fairlead.stats[:workers].sum { |worker| worker[:streams] }.to_s]])
        when "/kept" then ($requests << WeakRef.new(env); next [200, {}, ->(stream) { ($all ||= []) << stream; stream << "x"; stream.close }])
        end
        env["rack.response_finished"] << ->(*) { $finished << path }
        [200, { "content-type" => "text/plain" }, WAYS.fetch(path)]
      }
    RUBY
    LEFT_OPEN = %w[/open /nothing /ended /dies /task-dies].freeze

    %w[/thread /start /grandchild /task /task-thread /fiber /offload /hub /begun /global /struct /pool /collected /two].each do |path|
      define_method(:"test_a_response_lasts_until_its_stream_is_closed_by_#{path.delete("/").tr("-", "_")}") do
        connection = client(to: server).request("GET", path)
        eventually("it waits") { server.get("/waiting").body == "1" }
        refute_includes server.get("/finished").body.split, path
        server.get("/go")

        assert_equal path == "/begun" ? "xx" : "x", connection.response.body
        assert_equal 200, connection.get("/waiting").status, "the connection goes on"
        eventually("its end") { server.get("/finished").body.split.include?(path) }
      end
    end

    # Nobody may end it but the app: whether anyone has the stream is nobody's to guess.
    def test_what_is_left_open_stays_until_its_client_goes
      clients = LEFT_OPEN.map { |path| client(to: server).request("GET", path) }
      eventually("they wait") { server.get("/streams").body.to_i >= LEFT_OPEN.size }
      3.times { server.get("/streams") }
      assert_empty server.get("/finished").body.split & LEFT_OPEN
      clients.each { |client| assert_includes client.some, "200 OK" }
      clients.each(&:reset)

      eventually("their end") { (LEFT_OPEN - server.get("/finished").body.split).empty? }
    end

    def test_where_nothing_is_cancelled_the_response_ends_with_its_client_too
      with_server(APP, "--no-cancel-abandoned", lint: false) do |server|
        client = client(to: server).request("GET", "/nothing")
        assert_includes client.some, "200 OK", "the head waits for nothing"
        client.reset
        eventually("its end") { server.get("/finished").body.split.include?("/nothing") }
      end
    end

    # It may have gone without a word, or wait for what comes.
    def test_a_client_that_has_ended_its_side_long_ago_counts_as_gone_unless_it_gets_something
      sooner = <<~RUBY
        require "fairlead/serving/response_stream"
        Fairlead::ResponseStream.send(:remove_const, :CHECK)
        Fairlead::ResponseStream.const_set(:CHECK, 0.05)
      RUBY
      with_server(sooner + APP, lint: false) do |server|
        gone = client(to: server).request("GET", "/nothing")
        stays, reads = %w[/thread /endless].map { |path| client(to: server).request("GET", path) }
        [gone, stays, reads].each { |client| assert_includes client.some, "200 OK" }
        reads.close_write
        gone.close
        eventually("its end") { server.get("/finished").body.split.include?("/nothing") }
        100.times { reads.some }
        assert_empty server.get("/finished").body.split & %w[/thread /endless]
      end
    end

    def test_a_client_that_goes_ends_what_writes_to_it
      connection = client(to: server).request("GET", "/endless")
      connection.read(100)
      connection.reset

      eventually("the end of the stream") { server.get("/finished").body.split.include?("/endless") }
      eventually("the thread is told") { %w[IOError Fairlead::ClientGone].include?(server.get("/told").body) }
    end

    def test_a_body_that_raises_is_an_error_though_another_has_its_stream
      assert_equal 500, client(to: server).get("/raises").status
      server.get("/go")
    end

    def test_a_server_that_stops_cuts_what_is_left_open_so_that_its_client_can_tell
      with_server(APP, "--drain-timeout", "1", lint: false) do |server|
        clients = (LEFT_OPEN + %w[/endless]).map { |path| client(to: server).request("GET", path) }
        heads = clients.map { |client| client.some }

        assert_operator duration { assert_predicate server.stop, :success? }, :<, 20
        clients.zip(heads) { |client, head| refute_match(/^0\r\n\r\n\z/, head + client.rest) }
      end
    end

    # A hub that never forgets its subscribers.
    def test_a_stream_that_is_kept_after_its_end_does_not_keep_the_request
      20.times { assert_equal "x", server.get("/kept").body }

      eventually("most are collected") { server.get("/requests").body.to_i < 10 }
    end

    private

    def server = shared_server(APP, lint: false)
  end
end
