# frozen_string_literal: true

require_relative "../../../helper"
require_relative "../../../http2_client"
require_relative "../../../stalls"
require_relative "../../../tls_client"

module Fairlead
  # A worker that sleeps with Ruby's lock has connections over TLS: a sibling answers what comes over them. test_relay.c has the details.
  class RelayTest < Test
    include SpeaksHTTP
    include SpeaksHTTPS
    include Stalls

    APP = Stalls::APP.sub("case path", <<~'RUBY')
      case path
      when "/scheme" then return [200, {}, [env.values_at("rack.url_scheme", "HTTPS", "SERVER_PORT", "REMOTE_ADDR", "SSL_CLIENT_S_DN").inspect]]
      when "/none" then return [204, {}, []]
      when "/same" then return [304, { "etag" => "\"a\"" }, []]
      when "/chunks" then return [200, {}, ->(stream) { 3.times { |i| stream.write("part #{i}\n") }; stream.close }]
      when "/huge" then return [200, {}, ["0123456789abcdef" * 524_288]]
      when "/large" then return [200, {}, ["0123456789abcdef" * 131_072]]
      end
      case path
    RUBY

    def server = shared_server(APP, "-w", "2", "--bind", "http://127.0.0.1:0", *FLAGS, "--client-ca", "ca.pem", "--client-certificate", "optional",
                                  files: FILES.merge("ca.pem" => SpeaksHTTPS.certificates.authority))

    # Clients over TLS, whose worker is stuck meanwhile.
    #
    # @yieldparam client [HTTPClient]
    # @yieldparam worker [Integer]
    def beside_a_stuck_worker
      clients = client_of_each(server)
      stuck = keep_stuck(server)
      worker = stuck_worker(server)
      yield clients[worker], worker
      release(server)
      assert_equal worker.to_s, stuck.response.body
    end

    # @return [Hash{Integer => HTTP2Client}] by process; stream 1 is over.
    def http2_client_of_each
      port = URI(server.addresses.find { |address| address.start_with?("http:") }).port
      found = {}
      eventually("each worker has answered") do
        fresh = Array.new(4) { HTTP2Client.new(TCPSocket.new("127.0.0.1", port)).headers(1, HTTP2Client.get("/cpu?0.01")) }
        fresh.each { |one| found.key?(worker = one.body(1).to_i) ? one.close : found[worker] = one }
        (regular_workers(server) - found.keys).empty?
      end
      found
    end

    # Of this test: they speak TLS, and show a certificate.
    def client(to: server, **options) = tls_client(to:, **options) { |context| SpeaksHTTPS.show_certificate(context) }

    def test_a_sibling_answers_what_comes_over_the_same_connection
      beside_a_stuck_worker do |client, worker|
        refute_equal worker.to_s, client.get("/").body
        assert_equal '["https", "on", "443", "127.0.0.1", "CN=client.test"]', client.get("/scheme").body
        assert_equal 200, client.get("/", head: true).status
        assert_equal 204, client.get("/none").status
        assert_equal "\"a\"", client.get("/same")["etag"]
        assert_equal "part 0\npart 1\npart 2\n", client.get("/chunks").body
        assert_equal 2_097_152, client.get("/large").body.bytesize
        body = Random.bytes(40_000)
        assert_equal Digest::SHA256.hexdigest(body), client.request("POST", "/digest", body:).response.body
        assert_nil client.get("/")["connection"]
      end
    end

    # Each stream is a request of its own: those behind the one that keeps the worker go to the sibling.
    def test_a_sibling_answers_the_streams_of_a_connection_over_http_2
      clients = http2_client_of_each
      stuck = keep_stuck(server, on: client(to: server, timeout: 30))
      worker = stuck_worker(server)
      client = clients.fetch(worker)
      3.step(17, 2) { |id| client.headers(id, HTTP2Client.get("/")) }
      client.headers(19, HTTP2Client.post("/digest", ["content-length", "5"]), HTTP2Client::END_HEADERS).data(19, "bytes", HTTP2Client::END_STREAM)
      client.headers(21, HTTP2Client.get("/chunks")).headers(23, HTTP2Client.get("/large")).window(0, 1 << 24).window(23, 1 << 24)

      3.step(17, 2) { |id| refute_equal [200, worker.to_s], [client.status(id), client.body(id)] }
      assert_equal Digest::SHA256.hexdigest("bytes"), client.body(19)
      assert_equal "part 0\npart 1\npart 2\n", client.body(21)
      assert_equal 2_097_152, client.body(23).bytesize
      release(server)
      assert_equal worker.to_s, stuck.response.body
    ensure
      clients&.each_value(&:close)
    end

    # The sibling writes no faster than the client reads, and must not take that for a client that reads nothing.
    def test_a_slow_client_gets_all_of_a_response
      slow = with_server(APP, "-w", "2", "--bind", "http://127.0.0.1:0", *FLAGS, "--write-timeout", "2", files: FILES)
      clients = client_of_each(slow)
      keep_stuck(slow)
      client = clients.fetch(stuck_worker(slow))
      client.socket.setsockopt(:SOCKET, :RCVBUF, 65_536)
      client.write("GET /huge HTTP/1.1\r\nHost: a\r\n\r\n")
      nil until client.line.empty?
      read, until_then = 0, monotonic + 6
      # It raises if the connection ends before.
      while read < 8 << 20
        read += client.some.bytesize
        sleep 0.1 if monotonic < until_then
      end
      release(slow)
      assert_equal 200, client(to: slow).get("/").status
    end

    def test_a_client_that_leaves_early_leaves_the_sibling_alone
      beside_a_stuck_worker do |client|
        client.write("GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        client.line
        client.reset
        assert_equal 200, client(to: server).get("/").status
      end
      eventually("nothing is left of it") { server.worker_pids.all? { |pid| figures_of(server, pid)&.fetch(:in_flight) == 0 } }
    end
  end
end
