# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # Hundreds of busy streams, which together want more than there is, leave pages their share of the worker.
  class StreamsBesidePagesTest < Test
    include SpeaksHTTP

    # A page computes for 2 ms, a stream fifty times a second for 0.2 ms.
    APP = <<~'RUBY'
      CLOCK = -> { Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) }
      BURN = ->(seconds) { started = CLOCK.call; nil while CLOCK.call - started < seconds }
      class Events
        def each = loop { yield "data: x\n\n"; BURN.call(0.0002); sleep 0.02 }
      end
      run(lambda do |env|
        case env["PATH_INFO"]
        when "/callable" then [200, { "content-type" => "text/event-stream" }, ->(stream) { Events.new.each { |event| stream.write(event) } }]
        when "/each" then [200, { "content-type" => "text/plain" }, Events.new]
        else
          BURN.call(0.002)
          [200, {}, ["page"]]
        end
      end)
    RUBY

    STREAMS = 300
    SECONDS = 2

    %w[/callable /each].each do |path|
      define_method("test_pages_keep_their_share_beside_streams_of_#{path.delete("/")}") do
        server = with_server(APP, lint: false)
        alone = pages(server)
        beside, shares = beside_streams(server, path) { pages(server) }

        assert_operator beside, :>, 0.25 * alone, "pages beside streams, of #{alone} alone"
        assert_operator shares.min, :>, 0.5 * shares.max, "events of each stream"
      end
    end

    private

    # @return [Integer] how many pages four clients get in {SECONDS}.
    def pages(server)
      ends = monotonic + SECONDS
      Array.new(4) do
        Thread.new do
          client, count = client(to: server), 0
          client.get("/page") and count += 1 while monotonic < ends
          count
        end
      end.sum(&:value)
    end

    # @return [Array(Object, Array<Integer>)] what the block returns, and how much each stream got meanwhile.
    def beside_streams(server, path)
      sockets = Array.new(STREAMS) { TCPSocket.new("127.0.0.1", server.port).tap { |socket| socket.write("GET #{path} HTTP/1.1\r\nHost: a\r\n\r\n") } }
      got = Hash.new(0).compare_by_identity
      reader = Thread.new do
        loop { IO.select(sockets).first.each { |socket| got[socket] += socket.readpartial(65_536).bytesize } }
      rescue IOError
        nil
      end
      eventually("all streams have begun") { got.size == STREAMS }
      before = got.dup
      result = yield
      [result, sockets.map { |socket| got[socket] - before[socket] }]
    ensure
      reader&.kill&.join
      sockets&.each(&:close)
    end
  end
end
