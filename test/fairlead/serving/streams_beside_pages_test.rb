# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # Hundreds of busy streams, which together want more than there is, leave pages their share of the worker, and pages leave them
  # theirs.
  # Covers serving/turns.rb, serving/turn.rb
  class StreamsBesidePagesTest < Test
    include SpeaksHTTP

    timing

    # A page computes for 2 ms, or waits five times; a stream computes fifty times a second for 0.2 ms, a busy one for 5 ms.
    APP = <<~'RUBY'
      CLOCK = -> { Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) }
      BURN = ->(seconds) { started = CLOCK.call; nil while CLOCK.call - started < seconds }
      USED = { page: 0.0, stream: 0.0 }
      USE = ->(kind, seconds) { BURN.call(seconds); USED[kind] += seconds }
      EVENTS = { "content-type" => "text/event-stream" }
      class Events
        def initialize(seconds = 0.0002) = @seconds = seconds
        def each = loop { yield "data: x\n\n"; USE.call(:stream, @seconds); sleep 0.02 }
      end
      class Beginning
        def each
          yield "data: x\n\n"
          sleep 0.5
          USE.call(:stream, 1)
          sleep 0.02
          Events.new.each { |event| yield event }
        end
      end
      # Each event comes from another service.
      class Relayed
        def each
          reader, writer = IO.pipe
          Async { loop { writer.write("x"); sleep 0.02 } }
          loop { yield "data: #{reader.readpartial(16)}\n\n"; USE.call(:stream, 0.0002) }
        end
      end
      # Each event comes from another task, which sleeps without an end until then.
      class Signalled
        def each
          mutex, condition = Mutex.new, ConditionVariable.new
          Async { loop { sleep 0.02; mutex.synchronize { condition.signal } } }
          loop { yield "data: x\n\n"; USE.call(:stream, 0.0002); mutex.synchronize { condition.wait(mutex) } }
        end
      end
      # Each event comes when there is nothing to read for a while.
      class Polled
        def each
          reader, @writer = IO.pipe
          loop { yield "data: x\n\n"; USE.call(:stream, 0.0002); reader.wait_readable(0.02) }
        end
      end
      # What it reads from is always ready.
      class Ready
        def each
          reader, @writer = IO.pipe
          @writer.write("x")
          reader.timeout = 0.05
          loop { yield "data: x\n\n"; reader.wait_readable }
        end
      end
      run(lambda do |env|
        case env["PATH_INFO"]
        when "/callable" then [200, EVENTS, ->(stream) { Events.new.each { |event| stream.write(event) } }]
        when "/each" then [200, { "content-type" => "text/plain" }, Events.new]
        when "/relayed" then [200, EVENTS, Relayed.new]
        when "/signalled" then [200, EVENTS, Signalled.new]
        when "/polled" then [200, EVENTS, Polled.new]
        when "/ready" then [200, EVENTS, Ready.new]
        when "/busy" then [200, EVENTS, Events.new(0.005)]
        when "/beginning" then [200, EVENTS, Beginning.new]
        when "/used" then [200, {}, [USED.values.join(" ")]]
        when "/waits"
          began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
          5.times { sleep 0.001 }
          [200, {}, [(Process.clock_gettime(Process::CLOCK_MONOTONIC) - began).to_s]]
        else
          USE.call(:page, 0.002)
          [200, {}, ["page"]]
        end
      end)
    RUBY

    STREAMS = 300
    PAGES = 64

    %w[/callable /each /relayed /signalled /polled].each do |path|
      define_method("test_pages_and_streams_of_#{path.delete("/")}_each_have_half") do
        server = with_server(APP, "--queue-target", "0", lint: false)
        used, got = beside_streams(server, [path] * STREAMS, beside: "/page", events: 12)

        assert_in_delta 0.5, used, 0.15, "part of the time that pages had"
        assert_operator got.min, :>, 0.5 * got.max, "events of each stream"
      end
    end

    def test_the_share_of_streams_is_an_option
      server = with_server(APP, "--queue-target", "0", "--stream-share", "0.2", lint: false)
      used, = beside_streams(server, ["/each"] * STREAMS, beside: "/page", events: 6)

      assert_in_delta 0.8, used, 0.12, "part of the time that pages had"
    end

    # A round of all streams takes 60 ms of CPU time.
    def test_pages_that_wait_go_on_before_streams
      server = with_server(APP, "--queue-target", "0", lint: false)
      began = monotonic
      beside_streams(server, ["/each"] * STREAMS, beside: "/waits", events: 12)
      round = (monotonic - began) / 12

      assert_operator median(@took), :<, round, "seconds of a page that waits five times"
    end

    # Streams compute for 5 ms at a time. For each, pages get 20 ms.
    def test_pages_that_wait_go_on_before_new_ones
      server = with_server(APP, "--queue-target", "0", "--stream-share", "0.2", lint: false)
      took = nil
      beside_streams(server, ["/busy"] * 10, beside: "/page", events: 5) do
        took = Array.new(9) { client(to: server).get("/waits").body.to_f }
      end

      assert_operator median(took), :<, 0.06, "seconds in a page that waits five times"
    end

    # The ten want 2.5 workers.
    def test_busy_streams_do_not_hold_up_others
      server = with_server(APP, "--queue-target", "0", lint: false)
      _, got = beside_streams(server, (["/busy"] * 10) + (["/each"] * 50), events: 20)

      assert_operator got.drop(10).min, :>, 1.2 * got.first(10).max, "events of light streams, and of busy ones"
    end

    # Each busy stream would have 200 events meanwhile.
    def test_a_stream_that_has_computed_for_a_second_soon_has_its_turn
      server = with_server(APP, "--queue-target", "0", lint: false)
      _, got = beside_streams(server, [*["/busy"] * 10, "/beginning"], events: 60)

      assert_operator got.last, :>, 0, "its events"
    end

    # The busy ones take longer than it may wait for its descriptor.
    def test_the_timeout_of_an_io_does_not_count_the_wait_for_a_turn
      server = with_server(APP, "--queue-target", "0", lint: false)
      _, got = beside_streams(server, [*["/busy"] * 100, "/ready"], events: 5)

      assert_operator got.last, :>, 0, "its events"
    end

    private

    def median(values) = values.sort[values.size / 2]

    # Opens the streams, and has clients ask for pages until half of the streams have got so many events.
    #
    # @yield while all do
    # @return [Array(Float, Array<Integer>)] what part of the CPU time that pages and streams used the pages had, and how many events
    #   each stream sent.
    def beside_streams(server, paths, events:, beside: nil)
      streams = paths.map { |path| ask(server, path) }
      got = Hash.new(0).compare_by_identity
      @asked_at = Hash.new { 0.0 }.compare_by_identity
      reader = Thread.new { read(streams, got, beside ? Array.new(PAGES) { ask(server, beside) } : [], beside) }
      eventually("all streams have begun", within: 60) { got.size == paths.size }
      yield if block_given?
      measure(server, streams, got, events)
    ensure
      reader&.kill&.join
      [*streams, *@asked_at&.keys].each(&:close)
    end

    def ask(server, path, socket = TCPSocket.new("127.0.0.1", server.port))
      socket.write("GET #{path} HTTP/1.1\r\nHost: a\r\n\r\n")
      socket
    end

    # A client of pages asks for the next one at once.
    def read(streams, got, pages, path)
      @took = []
      pages.each { |socket| @asked_at[socket] = monotonic }
      loop do
        IO.select(streams + pages).first.each do |socket|
          bytes = socket.readpartial(65_536)
          next got[socket] += bytes.scan("data:").size unless @asked_at.key?(socket)

          @took << (monotonic - @asked_at[socket])
          @asked_at[socket] = monotonic
          ask(nil, path, socket)
        end
      end
    rescue IOError
      nil
    end

    def measure(server, sockets, got, events)
      before, used_before = got.dup, used(server)
      eventually("streams have had their events", within: 90) { median(sockets.map { |socket| got[socket] - before[socket] }) >= events }
      pages, streams = used(server).zip(used_before).map { |now, at_first| now - at_first }
      [pages / (pages + streams), sockets.map { |socket| got[socket] - before[socket] }]
    end

    # @return [Array<Float>] seconds of CPU time that pages and streams have used.
    def used(server) = client(to: server).get("/used").body.split.map(&:to_f)
  end
end
