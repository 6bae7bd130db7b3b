# frozen_string_literal: true

require "openssl"
require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # What users of other servers had to report about them, and could have had to here: the list is test/peers.md.
  class PeersTest < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      TEXT = { "content-type" => "text/plain" }.freeze
      class OnlyEach
        def initialize(*parts) = @parts = parts
        def each(&) = @parts.each(&)
      end

      run(lambda do |env|
        input = env["rack.input"]
        case env["PATH_INFO"]
        when "/body" then [200, TEXT.dup, [input.read.to_s.unpack1("H*")]]
        when "/parts" then [200, TEXT.dup, [[input.read(2), input.read, input.read(1)].inspect]]
        when "/encoding" then [200, TEXT.dup, [input.read.encoding.to_s]]
        when "/empty-parts" then [200, TEXT.dup, OnlyEach.new("")]
        when "/no-parts" then [200, TEXT.dup, OnlyEach.new]
        when "/own-chunks" then [200, TEXT.merge("transfer-encoding" => "chunked"), OnlyEach.new("3\r\nabc\r\n", "0\r\n\r\n")]
        when "/hop" then [200, TEXT.merge("connection" => "keep-alive", "keep-alive" => "timeout=5"), ["ok"]]
        when "/port" then [200, TEXT.dup, [[env["SERVER_NAME"], env["SERVER_PORT"], env["HTTP_VERSION"]].inspect]]
        when "/wide" then [200, TEXT.dup, ["ä" * 1_000, "€"]]
        when "/not-modified" then [304, {}, OnlyEach.new("something")]
        when "/hijack"
          Thread.new(env["rack.hijack"].call) { |io| io.write("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n") && io.read && io.close }
          [200, TEXT.dup, Rack::BodyProxy.new([]) { warn "the hijacked response's body is closed" }]
        when "/upload"
          warn "the upload has begun"
          begin
            input.read
          rescue StandardError => error
            warn "the upload ended: #{error.class}"
          end
          [200, TEXT.dup, ["read"]]
        when "/raise" then raise "on purpose"
        when "/no-backtrace" then raise Class.new(StandardError) { def backtrace = nil }, "from nowhere"
        else [200, TEXT.dup, ["ok"]]
        end
      end)
    RUBY

    def server = shared_server(APP, "--body-buffer", "1000")

    CHUNKED = "Host: a\r\nTransfer-Encoding: chunked\r\n\r\n"

    # puma 1480, 1492, 1812
    def test_the_end_of_a_chunked_body_is_never_the_next_requests
      body = "3\r\nabc\r\n0\r\n\r\n"
      (0..body.size).each do |cut|
        client = client()
        client << "POST /body HTTP/1.1\r\n#{CHUNKED}#{body[0, cut]}"
        client << body[cut..]
        assert_equal "616263", client.response.body, "cut at #{cut}"
        assert_equal "ok", client.get("/").body, "cut at #{cut}"
        client.close
      end
    end

    # puma 3951
    def test_trailers_that_come_late_are_no_body_and_no_error_of_ours
      { "\r\n" => 200, "X: y\r\n\r\n" => 200, "XX1\r\nX\r\n\r\n" => 400 }.each do |late, status|
        client = client().write("POST /body HTTP/1.1\r\n#{CHUNKED}1\r\na\r\n0\r\n")
        assert client.silent?(0.02)
        answer = client.write(late).response
        assert_equal status, answer.status, late
        assert_equal "61", answer.body if status == 200
      end
    end

    # puma 3552
    def test_a_bad_request_on_a_connection_that_has_served_is_told_at_once
      client = client()
      assert_equal "ok", client.get("/").body
      client.write_as_taken("GET /#{"a" * 20_000} HTTP/1.1\r\nHost: a\r\n\r\n")
      assert_operator duration { assert_equal 414, client.response.status }, :<, 10
    end

    # puma 1565
    def test_a_header_of_the_client_does_not_decide_the_framing
      ["HTTP/1.0", "HTTP/1.1, HTTP/1.1"].each do |version|
        client = client()
        answer = client.get("/", "Version: #{version}", "Connection: Keep-Alive")
        assert_equal %w[2 ok], [answer["content-length"], answer.body]
        assert_equal "ok", client.get("/").body
      end
    end

    # puma 523
    def test_what_the_app_has_put_in_chunks_is_not_put_in_chunks_again
      client = client()
      assert_equal "abc", client.get("/own-chunks").body
      assert_equal "ok", client.get("/").body
    end

    # puma 3112
    def test_a_body_of_nothing_ends
      %w[/empty-parts /no-parts].each do |path|
        client = client()
        answer = client.get(path)
        assert_equal ["0", ""], [answer["content-length"], answer.body], path
        assert_equal "ok", client.get("/").body
      end
    end

    # puma 3145
    def test_a_body_is_read_from_its_beginning_in_bytes
      ["abc", "a" * 5000].each do |body|
        [["PUT /parts HTTP/1.1\r\n", "#{CHUNKED}#{body.size.to_s(16)}\r\n#{body}\r\n0\r\n\r\n"],
         ["PUT /parts HTTP/1.1\r\n", "Host: a\r\nContent-Length: #{body.size}\r\n\r\n#{body}"]].each do |line, rest|
          assert_equal [body[0, 2], body[2..], nil].inspect, client.write(line + rest).response.body
          assert_equal "ASCII-8BIT", client.write(line.sub("parts", "encoding") + rest).response.body
        end
      end
    end

    # puma 95, 139
    def test_connections_that_are_kept_keep_nobody_waiting
      kept = Array.new(50) { client() }
      kept.each { |client| assert_equal "ok", client.get("/").body }
      assert_operator duration { assert_equal "ok", client.get("/").body }, :<, 10
      kept.reverse_each { |client| assert_equal "ok", client.get("/").body }
    end

    # puma 2089
    def test_a_client_that_hangs_up_an_idle_connection_gets_no_answer
      client = client()
      assert_equal "ok", client.get("/").body
      client.close_write
      assert_equal "", client.rest
    end

    # puma 2546
    def test_a_length_is_of_bytes_and_not_of_characters
      client = client()
      answer = client.get("/wide")
      assert_equal ["2003", "#{"ä" * 1_000}€"], [answer["content-length"], answer.body.force_encoding("UTF-8")]
      assert_equal "ok", client.get("/").body
    end

    # puma 2999: else Rails, in development, waits for a cable's end before it loads changed code
    def test_the_body_of_a_hijacked_response_is_closed_while_the_connection_lives
      client = client().request("GET", "/hijack")
      assert_equal 38, client.read(38).size
      eventually("it is closed") { server.log.include?("the hijacked response's body is closed") }
      client.close_write
      assert_equal "", client.rest
    end

    # puma 2341, 3307
    def test_an_error_of_any_kind_is_one_whole_response
      beginning = "GET / HTTP/1.1\r\nHost: a\r\n"
      { "\x01" => 400, "GET /#{"a" * 20_000}" => 414, "GET / HTTP/3.0\r\n\r\n" => 505, "#{beginning}Expect: x\r\n\r\n" => 417,
        "#{beginning}Content-Length: 99999999999\r\n\r\n" => 413, "#{beginning}Transfer-Encoding: x, chunked\r\n\r\n" => 501,
        "#{beginning}#{"X: y\r\n" * 300}\r\n" => 431,
        "GET /raise HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" => 500 }.each do |request, status|
        head, body = client().write_as_taken(request).rest.split("\r\n\r\n", 2)
        assert_match(%r{\AHTTP/1\.1 #{status} [A-Z]}, head)
        assert_equal head[/^content-length: (\d+)/, 1].to_i, body.bytesize
        refute_empty body
      end
    end

    # puma 986
    def test_who_speaks_tls_to_us_is_told_at_once_that_we_do_not
      socket = OpenSSL::SSL::SSLSocket.new(client().socket)
      assert_operator duration { assert_raises(OpenSSL::SSL::SSLError) { socket.connect } }, :<, 10
    end

    # puma 2552
    def test_an_error_without_a_backtrace_is_an_error_like_others
      assert_equal 500, client.get("/no-backtrace").status
      eventually("it is told") { server.log.include?("from nowhere") }
    end

    # falcon 205, 254, 317
    def test_clients_that_go_are_not_worth_a_word
      ["", "GET / HT", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "PUT /body HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx"].each do |bytes|
        3.times { client().write(bytes).reset }
      end
      assert_equal "ok", client.get("/").body
      refute_match(/ECONNRESET|EPIPE|reset by peer|Broken pipe/, server.log)
    end

    # puma 2398
    def test_connections_that_never_ask_do_not_hold_up_the_end
      server = with_server(APP)
      2.times { client(to: server) }
      assert_equal "ok", client(to: server).get("/").body
      assert_operator duration { assert_predicate server.stop, :success? }, :<, 20 # of the 30 s that it might take
    end

    # falcon 289, 254
    def test_a_response_that_may_have_no_body_has_none
      client = client()
      answer = client.get("/not-modified")
      assert_equal [304, nil, nil], [answer.status, answer["content-length"], answer["transfer-encoding"]]
      assert_equal "ok", client.get("/").body
    end

    # falcon 7
    def test_what_concerns_one_connection_is_ours_to_say
      answer = client.get("/hop", "Connection: close")
      assert_equal "close", answer["connection"]
    end

    # falcon 118
    def test_there_is_a_port_though_host_names_none
      assert_equal ["a", "80", nil].inspect, client.request("GET", "/port", host: "a").response.body
      assert_equal %w[a 81].push(nil).inspect, client.request("GET", "/port", host: "a:81").response.body
    end

    # falcon 206
    def test_an_upload_that_breaks_off_can_be_rescued
      server = with_server(APP, "--body-buffer", "1000", "--stream-request-bodies") # else no app is called
      client = client(to: server)
      client << "PUT /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n#{"x" * 50_000}"
      # A client that has gone before that has its request dropped: no app is told.
      eventually("the request was taken") { server.log.include?("the upload has begun") }
      client.reset
      eventually("the app was told") { server.log.include?("the upload ended: Fairlead::ClientGone") }
      assert_equal "ok", client(to: server).get("/").body
    end
  end
end
