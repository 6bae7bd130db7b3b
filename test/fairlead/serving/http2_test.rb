# frozen_string_literal: true

require "open3"
require_relative "../../helper"
require_relative "../../http2_client"
require_relative "../../http_client"

module Fairlead
  # HTTP/2 in the clear, with clients of others and with requests that only a hostile client would send.
  class HTTP2Test < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      LARGE = "0123456789" * 300_000
      APPS = {
        "/" => ->(_) { [200, { "content-type" => "text/plain" }, ["hello"]] },
        "/env" => ->(env) {
          keys = %w[REQUEST_METHOD PATH_INFO QUERY_STRING SERVER_PROTOCOL SERVER_NAME HTTP_HOST HTTP_COOKIE HTTP_X rack.url_scheme
                    rack.hijack rack.hijack? rack.protocol CONTENT_LENGTH]
          [200, {}, [keys.map { |key| "#{key}=#{env[key].inspect}\n" }.join]]
        },
        "/echo" => ->(env) { [200, {}, [env["rack.input"].read]] },
        "/large" => ->(_) { [200, {}, [LARGE]] },
        "/pieces" => ->(_) { [200, {}, Enumerator.new { |out| 20.times { out << LARGE[0, 1 << 20] } }] },
        "/too-large" => ->(_) { [204, { "x-large" => "x" * 100_000 }, []] },
        "/parts" => ->(_) { [200, {}, Enumerator.new { |out| 5.times { |i| out << "part #{i}\n"; sleep 0.01 } }] },
        "/callable" => ->(_) { [200, {}, proc { |stream| stream.write("called"); stream.close }] },
        "/hints" => ->(env) { env["rack.early_hints"].call("link" => "</x>"); [200, {}, ["hinted"]] },
        "/none" => ->(_) { [204, {}, []] },
        "/raise" => ->(_) { raise "no" },
        "/sleep" => ->(_) { sleep 0.2; [200, {}, ["slept"]] },
        "/whoami" => ->(_) { [200, {}, [Process.pid.to_s]] }
      }
      run ->(env) { APPS.fetch(env["PATH_INFO"]) { ->(_) { [404, {}, []] } }.call(env) }
    RUBY

    def server = shared_server(APP, "--early-hints", "--queue-target", "0")

    def curl(path, *flags)
      output, status = Open3.capture2("curl", "-sS", "--http2-prior-knowledge", "-m", "20", *flags, "http://127.0.0.1:#{server.port}#{path}",
                                      binmode: true)
      assert status.success?, "curl: #{status}"
      output
    end

    def test_the_app_sees_the_request
      env = curl("/env?q=1", "-b", "a=1; b=2", "-H", "x: y", "-d", "body").lines(chomp: true).to_h { |line| line.split("=", 2) }
      { "REQUEST_METHOD" => "POST", "PATH_INFO" => "/env", "QUERY_STRING" => "q=1", "SERVER_PROTOCOL" => "HTTP/2",
        "SERVER_NAME" => "127.0.0.1", "HTTP_HOST" => "127.0.0.1:#{server.port}", "HTTP_COOKIE" => "a=1; b=2", "HTTP_X" => "y",
        "rack.url_scheme" => "http", "rack.hijack" => nil, "rack.hijack?" => false, "rack.protocol" => nil,
        "CONTENT_LENGTH" => "4" }.each { |key, value| assert_equal value.inspect, env[key], key }
    end

    def test_responses_of_all_kinds
      assert_equal "0123456789" * 300_000, curl("/large")
      assert_equal Array.new(5) { |i| "part #{i}\n" }.join, curl("/parts")
      assert_equal "called", curl("/callable")
      assert_equal "hinted", curl("/hints")
      assert_match(/\AHTTP\/2 103 \r\nlink: <\/x>\r\n\r\nHTTP\/2 200/, curl("/hints", "-i"))
      assert_match(/\AHTTP\/2 204 \r\n/, curl("/none", "-i"))
      assert_match(/\AHTTP\/2 500 \r\n.*Internal Server Error/m, curl("/raise", "-i"))
      assert_match(/\AHTTP\/2 200 \r\n/, curl("/", "-I"))
    end

    # The client takes all of it at once: nothing but the server itself has it send the next piece.
    def test_a_client_with_large_windows_gets_all_of_a_large_response
      client = HTTP2Client.new(TCPSocket.new("127.0.0.1", server.port), { 4 => 1 << 30 }).window(0, 1 << 30)
      took = duration do
        [1, 3, 5].each do |id|
          client.headers(id, HTTP2Client.get("/pieces"))

          assert_equal 20 << 20, client.body(id).bytesize
        end
      end
      assert_operator took, :<, 15
    ensure
      client&.close
    end

    # Clients accept no more than 64 KB.
    def test_a_head_that_is_too_large_resets_its_stream
      client = HTTP2Client.new(TCPSocket.new("127.0.0.1", server.port))
      client.headers(1, HTTP2Client.get("/too-large")).headers(3, HTTP2Client.get("/"))

      assert_equal [:reset, "hello"], [client.status(1), client.body(3)]
    ensure
      client&.close
    end

    def test_request_bodies_of_all_sizes
      server.write("body", bytes = Random.new(1).bytes(3_000_000))
      [0, 1, 65_535, 65_536, 300_000, 3_000_000].each do |size|
        File.binwrite(server.path("body"), bytes[0, size])
        assert_equal bytes[0, size], curl("/echo", "--data-binary", "@#{server.path("body")}"), size
      end
    end

    def test_many_requests_of_many_connections
      output, = Open3.capture2e("h2load", "-n", "2000", "-c", "10", "-m", "20", "http://127.0.0.1:#{server.port}/")
      assert_includes output, "2000 succeeded, 0 failed, 0 errored, 0 timeout"
      assert_includes output, "status codes: 2000 2xx"
    end

    def test_nghttp_gets_all_responses_of_a_connection
      addresses = %w[/ /parts /large /none /sleep].map { |path| "http://127.0.0.1:#{server.port}#{path}" }
      output, status = Open3.capture2e("nghttp", "-ns", *addresses)
      assert status.success?
      assert_equal [200, 200, 200, 200, 204], output.scan(/^ *\d+ .*?(\d{3}) +\S+ \/\S*$/).flatten.map(&:to_i).sort
    end

    # Each request with the bytes that HTTP/1 would need for the same: what is refused there, is refused here.
    FIELDS = [
      [":path", "/a b"], [":path", "/a\r\nx: y"], [":path", "/a HTTP/1.1\r\nHost: b\r\n\r\nGET /"], [":path", "/\0"], [":path", "/\x80"],
      [":path", "/<>"], [":path", "/a#b"], [":path", "*"], [":path", ""], [":path", "a"], [":path", "http://a/"], [":path", "//a"],
      [":path", "/%zz"], [":path", "/?a=\""], [":path", "/#{"a" * 9000}"],
      [":method", "GET /x HTTP/1.1\r\nX:"], [":method", "get"], [":method", "G(T"], [":method", ""], [":method", "A" * 40],
      [":authority", "a b"], [":authority", "a:b"], [":authority", "a:99999"], [":authority", "u@a"], [":authority", "a/"],
      [":authority", "[::1]"], [":authority", "[::g]"], [":authority", "a\r\nx: y"], [":authority", ""],
      ["host", "b"], ["host", "a b"],
      ["x", "a\r\ny: z"], ["x", "a\nb"], ["x", "a\0b"], ["x", " a"], ["x", "a "], ["x", "a\tb"], ["x", "\x7f"], ["x", "\x80"],
      ["x y", "a"], ["x:", "a"], ["x\r\ny", "a"], ["X-A", "a"], ["", "a"], ["x\xff", "a"], ["x_y", "a"],
      ["content-length", "1"], ["content-length", "0"], ["content-length", "+0"], ["content-length", "-1"], ["content-length", "0x0"],
      ["content-length", "0, 0"], ["content-length", ""], ["content-length", "18446744073709551616"], ["content-length", "1_0"],
      ["transfer-encoding", "chunked"], ["transfer-encoding", "identity"], ["connection", "close"], ["connection", "upgrade"],
      ["keep-alive", "timeout=5"], ["proxy-connection", "close"], ["upgrade", "h2c"], ["te", "trailers"], ["te", "chunked"],
      ["expect", "100-continue"], ["expect", "x"], ["x", "a" * 200_000]
    ].freeze
    # They mean something else in HTTP/1, and HTTP/2 forbids them.
    ONLY_HTTP1 = ["connection", "keep-alive", "proxy-connection", "upgrade", "transfer-encoding", "te", "host", "X-A", ":path http://a/",
                  "x  a", "x a ", "x: a", ":authority ", ":authority a\r\nx: y", ":path /a HTTP/1.1\r\nHost: b\r\n\r\nGET /", "x a\r\ny: z",
                  ":method GET /x HTTP/1.1\r\nX:"].freeze

    def http1_status(name, value)
      parts = { ":method" => "GET", ":path" => "/", ":authority" => "a" }
      parts[name] = value if parts.key?(name)
      field = parts.key?(name) ? "" : "#{name}: #{value}\r\n"
      bytes = "#{parts[":method"]} #{parts[":path"]} HTTP/1.1\r\nHost: #{parts[":authority"]}\r\n#{field}\r\n"
      one = client.write_as_taken(bytes.b)
      one.socket.close_write # a body that does not come is one that never will
      one.response&.status
    end

    def http2_status(name, value)
      fields = HTTP2Client.get("/").to_h
      own = fields.key?(name)
      fields[name] = value if own
      fields = [*fields, *([[name, value]] unless own)]
      with_http2 { |client| client.headers(1, fields).status(1) }
    end

    def with_http2
      client = HTTP2Client.new(server.connect)
      yield client
    ensure
      client&.close
    end

    def test_what_http1_refuses_is_refused
      differences = FIELDS.filter_map do |name, value|
        one, two = http1_status(name, value), http2_status(name, value)
        named = "#{name} #{value}"[0, 80]
        accepted = two.is_a?(Integer) && two < 400
        same = one && one < 400 ? accepted || ONLY_HTTP1.include?(named) || ONLY_HTTP1.include?(name) : !accepted
        "#{named.inspect}: #{one} over HTTP/1, #{two}" unless same
      end
      assert_empty differences
    end

    def test_fields_of_http1s_connections_are_malformed
      [%w[connection close], %w[keep-alive 1], %w[proxy-connection close], %w[upgrade h2c], %w[transfer-encoding chunked], %w[te gzip],
       %w[X upper], %w[host other], [":path", "/2"], [":unknown", "1"]].each do |field|
        status = with_http2 { |client| client.headers(1, [*HTTP2Client.get("/"), field]).status(1) }
        refute_includes 100..399, status, field.inspect
      end
      assert_equal 200, with_http2 { |client| client.headers(1, [*HTTP2Client.get("/"), %w[te trailers], %w[host a]]).status(1) }
    end

    def test_a_body_must_have_its_length
      { "3" => :reset, "5" => :reset, "4" => 200 }.each do |length, expected|
        with_http2 do |client|
          client.headers(1, HTTP2Client.post("/echo", ["content-length", length]), HTTP2Client::END_HEADERS)
          client.data(1, "body", HTTP2Client::END_STREAM)
          assert_equal expected, client.status(1), length
        end
      end
    end

    def test_a_stop_answers_what_has_come
      with_server(APP) do |server|
        client = HTTP2Client.new(server.connect)
        [1, 3].each { |id| client.headers(id, HTTP2Client.get("/sleep")) }
        client.headers(5, HTTP2Client.get("/whoami")).status(5)
        server.signal(:TERM)
        client.read until client.goaway
        client.headers(7, HTTP2Client.get("/")) # the last one is named only when the client has answered
        assert_equal %w[slept slept hello], [1, 3, 7].map { |id| client.body(id) }
        assert_predicate client, :ends?
        assert_equal 0, client.goaway
      end
    end

    def test_a_restart_of_the_workers_fails_no_request
      with_server(APP, "--workers", "2") do |server|
        before = server.worker_pids
        statuses = HTTP2Client.ask_meanwhile("/whoami", -> { server.connect }) do
          server.signal(:HUP)
          eventually("new workers serve") { server.log.include?("The workers have been restarted.") }
        end
        eventually("the old workers have ended") { (server.worker_pids & before).empty? }
        assert_equal [200], statuses.keys
      end
    end
  end
end
