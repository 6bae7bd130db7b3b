# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../http2_client"
require_relative "../../http_client"
require_relative "../../tls_client"

module Fairlead
  # Clients that make an HTTP/2 server work, or keep memory, for nothing. The server ends their connections or bounds them, and
  # others notice nothing.
  class HTTP2AttacksTest < Test
    include SpeaksHTTP
    include SpeaksHTTPS

    APP = <<~'RUBY'
      LARGE = "x" * 200_000
      run(lambda do |env|
        case env["PATH_INFO"]
        when "/large" then [200, {}, [LARGE]]
        when "/wait" then sleep 0.05; [200, {}, ["waited"]]
        when "/upload" then [200, {}, [env["rack.input"].read.bytesize.to_s]]
        else [200, {}, ["neighbour"]]
        end
      end)
    RUBY
    H = HTTP2Client
    MOST_MEMORY = 20 << 20 # bytes
    MOST_TIME = 2 # seconds of the processor, for attacks that take 0.1 at most

    def server
      shared_server(APP, "--bind", "http://127.0.0.1:0", *FLAGS, "--write-timeout", "2", "--body-timeout", "2", files: FILES)
    end

    def teardown
      @attackers&.each(&:close)
      super
    end

    def attacker(settings = {})
      H.new(server.connect, settings).tap { |client| (@attackers ||= []) << client }
    end

    def attacker_over_tls(settings = {})
      socket = TLSSocket.new(connect_to_https(server)) do |context|
        context.set_params(cert_store: SpeaksHTTPS.certificates.store)
        context.alpn_protocols = ["h2"]
      end
      H.new(socket, settings).tap { |client| (@attackers ||= []) << client }
    end

    # @param field [String] VmRSS: now; VmHWM: at most since {#forget_peaks}
    def memory(field = "VmRSS")
      server.worker_pids.sum { |pid| File.read("/proc/#{pid}/status")[/#{field}:\s+(\d+)/, 1].to_i * 1024 }
    end

    def forget_peaks = server.worker_pids.each { |pid| File.write("/proc/#{pid}/clear_refs", "5") }

    # Runs the attack while a neighbour asks, and checks that all its requests succeed, and that the worker takes little memory and
    # little time.
    #
    # @param most [Integer] bytes
    def beside_a_neighbour(most: MOST_MEMORY)
      neighbour = client
      50.times { assert_equal 200, neighbour.get("/").status } # what the first requests allocate is no attack's
      forget_peaks
      before = memory
      worked = server.worker_pids.sum { |pid| cpu_time(pid) }
      stop = false
      asking = Thread.new do
        bodies = Hash.new(0)
        until stop
          bodies[neighbour.get("/").body] += 1
          sleep 0.005
        end
        bodies
      end
      yield
      stop = true
      assert_equal ["neighbour"], asking.value.keys
      assert_operator memory("VmHWM") - before, :<, most
      assert_operator server.worker_pids.sum { |pid| cpu_time(pid) } - worked, :<, MOST_TIME
    ensure
      stop = true
      asking&.join
    end

    # Sends what the block returns for each number, until the server ends the connection.
    def flood(client, most: 20_000, batch: 50, codes: [H::ENHANCE_YOUR_CALM])
      (1..most).each_slice(batch) do |numbers|
        break if client.goaway || client.ended

        client.write(numbers.map { |number| yield number }.join)
        client.drain
      end
      assert_predicate client, :ends?
      assert_includes [*codes, nil], client.goaway # nil: the system has reset what was not read
    end

    def get_frame(id, path = "/wait") = H.frame(H::HEADERS, H::END_STREAM | H::END_HEADERS, id, H.pack(H.get(path)))

    def test_rapid_reset
      beside_a_neighbour do
        flood(attacker) { |n| get_frame((2 * n) - 1) + H.frame(H::RST_STREAM, 0, (2 * n) - 1, [8].pack("N")) }
      end
    end

    # The server has to reset the streams itself: for a window that does not grow, or data after the end.
    def test_streams_that_the_server_has_to_reset
      beside_a_neighbour do
        any = { codes: 1..13 } # nghttp2 takes some for errors of the connection
        flood(attacker, **any) { |n| get_frame((2 * n) - 1) + H.frame(H::WINDOW_UPDATE, 0, (2 * n) - 1, [0].pack("N")) }
        flood(attacker, **any) { |n| get_frame((2 * n) - 1) + H.frame(H::DATA, 0, (2 * n) - 1, "x") }
        flood(attacker, **any) { |n| H.frame(H::HEADERS, 5, (2 * n) - 1, H.pack([*H.get("/"), %w[connection close]])) }
      end
    end

    def test_headers_that_never_end
      beside_a_neighbour do
        client = attacker
        client.headers(1, H.get("/"), H::END_STREAM)
        flood(client, batch: 5, codes: 1..13) { H.frame(H::CONTINUATION, 0, 1, H.pack([["x", "y" * 8000]])) }
        client = attacker
        client.headers(1, H.get("/"), H::END_STREAM)
        client.write(H.frame(H::CONTINUATION, 0, 1) * 5000)
        assert_predicate client, :ends?
      end
    end

    # A field of 4,000 bytes goes into HPACK's table, then a byte names it.
    def test_headers_that_unpack_to_megabytes
      beside_a_neighbour do
        client = attacker
        field = [0x40].pack("C") + H.string("x") + H.string("y" * 4000)
        flood(client, most: 500) do |n|
          H.frame(H::HEADERS, 5, (2 * n) - 1, H.pack(H.get("/")) + (n == 1 ? field : "") + ([0x80 | 62].pack("C") * 10_000))
        end
      end
    end

    # Many fields and crumbs of cookies, whose responses wait for a window.
    def test_many_small_fields_while_the_window_is_zero
      beside_a_neighbour do
        client = attacker(4 => 0)
        crumbs = [0x40].pack("C") + H.string("cookie") + H.string("a") + ([0x80 | 62].pack("C") * 800)
        100.times { |n| client.frame(H::HEADERS, 5, (2 * n) + 1, H.pack(H.get("/large")) + (n.zero? ? crumbs : [0x80 | 62].pack("C") * 800)) }
        client.body(199)
        assert_equal "", client.body(1)
      end
    end

    def test_floods_of_settings_pings_and_unknown_frames
      beside_a_neighbour do
        flood(attacker) { H.frame(H::SETTINGS, 0, 0, [3, 100].pack("nN")) }
        flood(attacker) { H.frame(H::PING, 0, 0, "12345678") }
        flood(attacker) { H.frame(H::PRIORITY, 0, 1, [0, 16].pack("NC")) }
        flood(attacker) { H.frame(0x77, 0, 0, "unknown" * 100) }
      end
    end

    def test_data_without_bytes
      beside_a_neighbour do
        [H.frame(H::DATA, 0, 1), H.frame(H::DATA, 8, 1, "\x04\0\0\0\0")].each do |frame|
          client = attacker
          client.headers(1, H.post("/upload"), H::END_HEADERS)
          flood(client) { frame }
        end
      end
    end

    def test_windows_that_open_byte_by_byte
      beside_a_neighbour do
        client = attacker(4 => 0)
        client.headers(1, H.get("/large"))
        flood(client) { H.frame(H::WINDOW_UPDATE, 0, 1, [1].pack("N")) }
      end
    end

    # They keep what fits into the first window of each, and no fiber; then their time is over.
    def test_many_streams_with_slow_bodies
      beside_a_neighbour do
        client = attacker
        100.times do |n|
          client.headers((2 * n) + 1, H.post("/upload"), H::END_HEADERS)
          3.times { client.data((2 * n) + 1, "x" * 16_000) }
        end
        assert_equal 408, client.status(1)
        assert_equal 408, client.status(199)
      end
    end

    # Responses that nobody takes: they wait without a fiber, up to a limit, and are dropped after write_timeout.
    def test_many_responses_that_nobody_takes
      beside_a_neighbour do
        client = attacker(4 => 0)
        100.times { |n| client.headers((2 * n) + 1, H.get("/large")) }
        client.body(199)
        assert_equal "", client.body(1)
        refute client.ended
      end
    end

    # What each attack repeats; the server ends each of its connections.
    FLOODS = {
      rapid_reset: ->(id) { H.frame(H::HEADERS, 5, id, H.pack(H.get("/wait"))) + H.frame(H::RST_STREAM, 0, id, [8].pack("N")) },
      made_resets: ->(id) { H.frame(H::HEADERS, 5, id, H.pack(H.get("/wait"))) + H.frame(H::WINDOW_UPDATE, 0, id, [0].pack("N")) },
      continuations: ->(id) { id == 1 ? H.frame(H::HEADERS, 1, 1, H.pack(H.get("/"))) : H.frame(H::CONTINUATION, 0, 1, H.pack([["x", "y" * 8000]])) },
      settings: ->(_) { H.frame(H::SETTINGS, 0, 0, [3, 100].pack("nN")) },
      pings: ->(_) { H.frame(H::PING, 0, 0, "12345678") },
      empty_data: ->(id) { id == 1 ? H.frame(H::HEADERS, 4, 1, H.pack(H.post("/upload"))) : H.frame(H::DATA, 0, 1) },
    }.freeze

    def test_floods_over_tls_from_several_connections
      beside_a_neighbour do
        FLOODS.each_value do |frames|
          attackers = Array.new(3) { attacker_over_tls }
          attackers.map { |client| Thread.new { flood(client, batch: 5, codes: 1..13) { |n| frames.call((2 * n) - 1) } } }.each(&:join)
        end
      end
    end

    # Each connection may hold its share.
    def test_what_holds_memory_over_tls_from_several_connections
      beside_a_neighbour(most: 3 * MOST_MEMORY) do
        attackers = Array.new(3) { attacker_over_tls(4 => 0) }
        attackers.each do |client|
          50.times { |n| client.headers((2 * n) + 1, H.get("/large")) }
          50.times { |n| client.headers(101 + (2 * n), H.post("/upload"), H::END_HEADERS) && client.data(101 + (2 * n), "x" * 16_000) }
        end
        attackers.each { |client| assert_equal "", client.body(1) }
        attackers.each { |client| assert_equal 408, client.status(199) }
      end
    end
  end
end
