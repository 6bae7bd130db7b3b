# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # What the server does for event streams: the headers that proxies need, comments while they are silent, an end in order when the server
  # stops, and the end of what they wait for when their client has gone.
  class EventStreamTest < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      EVENTS = { "content-type" => "text/event-stream" }
      ENDED = Queue.new
      # Says one event, and then nothing; `ended` says why it ended.
      class Silent
        def each
          yield "data: hello\n\n"
          sleep
        ensure
          ENDED << ($! ? $!.class : "returned")
        end
      end
      # A thread of its own calls the block.
      class FromThread
        def each
          writer = Thread.new { 200.times { [yield("more\n"), sleep(0.1)] } }
          writer.report_on_exception = false
          writer.join
        end
      end
      # Passes on what another service sends.
      class Relay
        def initialize(port) = @port = port
        def each
          socket = TCPSocket.new("127.0.0.1", @port)
          loop { yield "data: #{socket.readpartial(100)}\n\n" }
        ensure
          socket&.close
        end
      end
      run(lambda do |env|
        case env["PATH_INFO"]
        when "/silent" then [200, EVENTS, Silent.new]
        when "/thread" then [200, {}, FromThread.new]
        when "/callable" then [200, EVENTS, ->(stream) { Silent.new.each { |event| stream.write(event) } }]
        when "/relay" then [200, EVENTS, Relay.new(Integer(env["QUERY_STRING"]))]
        when "/ended" then [200, {}, [ENDED.pop(timeout: 15).to_s]]
        when "/ended-soon" then [200, {}, [ENDED.pop(timeout: 3).to_s]]
        else [200, { **EVENTS, "cache-control" => "private", "x-accel-buffering" => "yes" }, ["data: whole\n\n"]]
        end
      end)
    RUBY

    def test_proxies_are_told_not_to_buffer
      with_stream(server, "/silent") do |socket|
        head = read_until(socket, "\r\n\r\n")
        assert_includes head, "\r\ncache-control: no-cache\r\n"
        assert_includes head, "\r\nx-accel-buffering: no\r\n"
      end
    end

    def test_headers_of_the_app_stay
      response = client(to: server).get("/whole")

      assert_equal %w[private yes], response.headers.to_h.values_at("cache-control", "x-accel-buffering")
      assert_equal "data: whole\n\n", response.body
    end

    def test_a_silent_stream_gets_comments
      with_stream(server, "/silent") { |socket| assert_match(/data: hello\n\n.*:\n\r\n.*:\n\r\n\z/m, read_until(socket, ":\n\r\n2\r\n:\n\r\n")) }
    end

    %w[/silent /callable].each do |path|
      name = path.delete("/")

      define_method(:"test_a_#{name}_stream_whose_client_has_gone_ends") do
        server = with_server(APP, lint: false)
        with_stream(server, path) { |socket| read_until(socket, "hello\n\n") }

        assert_equal "Fairlead::ClientGone", client(to: server).get("/ended").body
      end

      define_method(:"test_a_#{name}_stream_ends_in_order_when_the_server_stops") do
        server = with_server(APP, lint: false)
        with_stream(server, path) do |socket|
          read_until(socket, "hello\n\n")
          began = monotonic
          server.signal("TERM")

          assert_match(/\r\nretry: \d+\n\n\r\n0\r\n\r\n\z/, socket.read)
          server.wait_for_end
          assert_operator monotonic - began, :<, 15, "seconds until the server ended, of 30 that it would have waited"
        end
      end
    end

    def test_a_stream_goes_on_without_its_client_where_that_is_wanted
      server = with_server(APP, "--no-cancel-abandoned", lint: false)
      with_stream(server, "/silent") { |socket| read_until(socket, "hello\n\n") }

      assert_equal "", client(to: server).get("/ended-soon").body
    end

    def test_what_a_stream_relays_ends_with_its_client
      service = TCPServer.new("127.0.0.1", 0)
      with_stream(server, "/relay?#{service.addr[1]}") do |socket|
        upstream = service.accept
        upstream.write("token")
        read_until(socket, "data: token\n\n")
        socket.close

        assert upstream.wait_readable(30), "the call ends"
        assert_nil upstream.read(1)
      end
    ensure
      service&.close
    end

    def test_the_client_of_a_long_body_that_a_thread_writes_may_go
      server = with_server(APP, lint: false)
      with_stream(server, "/thread") do |socket|
        read_until(socket, "5\r\nmore\n\r\n" * 55)
        socket.setsockopt(Socket::Option.linger(true, 0))
      end

      assert_equal "200", client(to: server).get("/ended-soon").status.to_s
      refute_match(/NoMethodError|unhandled/, server.log)
    end

    private

    def server = shared_server(APP, "--event-stream-keepalive", "0.2", lint: false)

    def with_stream(server, path)
      server.connect do |socket|
        socket.write("GET #{path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
        yield socket
      end
    end

    def read_until(socket, text)
      read = +""
      read << socket.readpartial(4096) until read.include?(text)
      read
    end
  end
end
