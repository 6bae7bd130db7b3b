# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # How answers end, also those that an app, or a client, has framed wrongly (RFC 9110, 9112).
  class FramingTest < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      run(lambda do |env|
        case env["PATH_INFO"]
        when "/read" then env["rack.input"].read; [200, {}, ["read"]]
        when "/slow" then sleep(30); [200, {}, ["slow"]]
        when %r{\A/coded/(\d+)} then [$1.to_i, { "transfer-encoding" => "chunked" }, []]
        when %r{\A/long/(\d+)} then [$1.to_i, { "content-length" => "4" }, ["body"]]
        when "/identity" then [200, { "transfer-encoding" => "Identity" }, ["unframed ", "body"]]
        when "/identity-each" then [200, { "transfer-encoding" => "identity" }, Enumerator.new { |out| out << "un"; sleep 0.01; out << "framed" }]
        when "/gzip" then [200, { "transfer-encoding" => "gzip" }, ["coded"]]
        when "/gzip-chunked" then [200, { "transfer-encoding" => %w[gzip chunked] }, ["5\r\ncoded\r\n0\r\n\r\n"]]
        when "/chunked" then [200, { "transfer-encoding" => "chunked" }, ["5\r\nfirst\r\n", "6;x=y\r\nsec", "ond\r\n0\r\n\r\n"]]
        when "/chunked-large" then [200, { "transfer-encoding" => "chunked" }, Enumerator.new { |out| 20.times { out << "40000\r\n#{"x" * 0x40_000}\r\n" }; out << "0\r\n\r\n" }]
        when "/unchunked" then [200, { "transfer-encoding" => "chunked" }, ["not in chunks"]]
        when "/unchunked-each" then [200, { "transfer-encoding" => "chunked" }, Enumerator.new { |out| out << "1\r\na\r\n"; sleep 0.05; out << "not in chunks" }]
        when "/unended" then [200, { "transfer-encoding" => "chunked" }, ["1\r\na\r\n"]]
        when "/overlong" then [200, { "transfer-encoding" => "chunked" }, ["0\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"]]
        when "/hints"
          env["rack.early_hints"].call("link" => "a", "Content-Length" => "5", "transfer-encoding" => "chunked")
          [200, {}, ["hinted"]]
        when "/keep-alive" then [200, { "keep-alive" => "timeout=5" }, ["x"]]
        when "/trailers"
          env["fairlead.response_trailers"] = { "Content-Length" => "5", "transfer-encoding" => "chunked", "host" => "b", "trailer" => "x", "x" => "y" }
          [200, { "trailer" => "x" }, Enumerator.new { |out| out << "a" }]
        when "/request-trailers" then env["rack.input"].read; [200, {}, [env["fairlead.request_trailers"].keys.inspect]]
        when "/pairs" then [200, [%w[content-type text/plain], %w[set-cookie a], %w[set-cookie b]], Enumerator.new { |out| out << "pa"; out << "irs" }]
        when "/pairs-stream" then [200, [%w[content-type text/event-stream]], ->(stream) { stream.write("pairs"); stream.close }]
        when "/pairs-hijack" then [200, [["rack.hijack", ->(stream) { stream.write("pairs"); stream.close }]], []]
        when "/each" then [200, Class.new { def each = yield("content-type", "text/plain") }.new, Enumerator.new { |out| out << "each" }]
        when "tunnel:80" then [200, { "rack.hijack" => ->(stream) { stream.write(stream.readpartial(9).upcase); stream.close } }, []]
        when "a:80" then [env["HTTP_X_STATUS"].to_i, env.key?("HTTP_X_LONG") ? { "content-length" => "4" } : {}, ["body"]]
        else [200, {}, [env.values_at("REQUEST_METHOD", "SERVER_PROTOCOL").join(" ")]]
        end
      end)
    RUBY

    CODED = "HEAD /read HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    LONG = "40000\r\n#{"x" * 0x40_000}\r\n"

    def server = shared_server(APP, "--early-hints", lint: false)

    # One that waits for nobody for long, but for a client that a busy machine keeps from writing.
    def hasty = shared_server(APP, "--body-timeout", "2", "--head-timeout", "2", "--request-timeout", "2", name: :hasty, lint: false)

    # @return [Array(String, String)] head and body of all that comes until the end.
    def all(*parts, to: server)
      client = client(to:)
      parts.each { |part| part.is_a?(String) ? client.write_as_taken(part) : sleep(part) }
      client.rest.split("\r\n\r\n", 2)
    end

    def test_a_refused_head_has_no_body
      { "400 Bad Request" => [[CODED, "zz\r\n"], [CODED, LONG, 0.1, "zz\r\n"], ["HEAD /b HTTP/1.1\r\nHost : a\r\n\r\n"]],
        "408 Request Timeout" => [[CODED, "5\r\nab"], ["HEAD /a HTTP/1.1\r\n"], ["HEAD /a"], ["\r\nHEAD "]],
        "413 Content Too Large" => [["HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n"]],
        "414 URI Too Long" => [["HEAD /#{"a" * 20_000}"]],
        "504 Gateway Timeout" => [["HEAD /slow HTTP/1.1\r\nHost: a\r\n\r\n"]],
        "505 HTTP Version Not Supported" => [["HEAD / HTTP/3.0\r\n\r\n"]] }.each do |status, requests|
        to = status.match?(/408|504/) ? hasty : server
        requests.map { |parts| [parts, Thread.new { all(*parts, to:) }] }.each do |parts, answer|
          head, body = answer.value
          assert_equal ["HTTP/1.1 #{status}", ""], [head[/.*(?=\r\n)/], body], parts.first[0, 50]
        end
      end
      assert_equal ["the request took too long\n", "a chunk is malformed\n"],
                   [all("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n", to: hasty), all(CODED.sub("HEAD", "POST"), LONG, 0.1, "zz\r\n")].map(&:last)
    end

    def test_what_can_have_no_body_says_nothing_of_its_framing
      client = client()
      [204, 205, 304].each do |status|
        %w[coded long].each do |path|
          answer = client.get("/#{path}/#{status}")
          assert_equal [status, nil, status == 205 ? "0" : nil, ""], [answer.status, answer["transfer-encoding"], answer["content-length"], answer.body]
        end
      end
      assert_equal "GET HTTP/1.1", client.get("/").body, "the connection is in step"
    end

    def test_an_answer_to_connect_opens_a_tunnel_or_is_an_answer
      ["", "X-Long: 1\r\n"].each do |field|
        head, body = all("CONNECT a:80 HTTP/1.1\r\nHost: a\r\n#{field}X-Status: 200\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
        assert_equal ["HTTP/1.1 200 OK", ""], [head[/.*(?=\r\n)/], body]
        refute_match(/content-length|transfer-encoding/i, head)
      end
      head, body = all("CONNECT a:80 HTTP/1.1\r\nHost: a\r\nX-Status: 403\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
      assert_equal ["HTTP/1.1 403 Forbidden", "body"], [head[/.*(?=\r\n)/], body]
      assert_includes head, "content-length: 4"
    end

    def test_an_app_may_serve_a_tunnel
      client = client().write("CONNECT tunnel:80 HTTP/1.1\r\nHost: a\r\n\r\nthrough")
      head, body = client.rest.split("\r\n\r\n", 2)
      assert_equal ["THROUGH", []], [body, head.scan(/^(?:connection|content-length|transfer-encoding)/i)]
    end

    def test_identity_is_no_coding
      client = client()
      %w[/identity /identity-each].each do |path|
        answer = client.get(path)
        refute_equal "identity", answer["transfer-encoding"].to_s.downcase
        assert_includes ["unframed body", "unframed"], answer.body
      end
      assert_equal [200, "unframed body"], client.request("GET", "/identity", version: "1.0").response.then { |answer| [answer.status, answer.body] }
    end

    def test_another_coding_than_chunked_ends_with_the_connection
      head, body = all("GET /gzip HTTP/1.1\r\nHost: a\r\n\r\n")
      assert_equal ["coded", true], [body, head.include?("connection: close")]
      client = client().request("GET", "/gzip-chunked").request("GET", "/", "Connection: close")
      assert_includes client.rest, "5\r\ncoded\r\n0\r\n\r\nHTTP/1.1 200 OK"
    end

    def test_chunks_of_the_apps_own_are_sent_as_they_are
      client = client()
      2.times { assert_equal "firstsecond", client.get("/chunked").body }
      client = client()
      client.request("GET", "/chunked-large")
      sleep 0.3 # it has to wait for us
      assert_equal 20 * 0x40_000, client.response.body.bytesize
      assert_equal "GET HTTP/1.1", client.get("/").body
    end

    # What followed on the connection would be taken for the rest of it.
    def test_chunks_that_are_none_end_the_connection
      %w[/unchunked /overlong].each { |path| assert_equal 500, client.get(path).status, path }
      %w[/unchunked-each /unended].each do |path|
        client = client().request("GET", path).request("GET", "/next")
        assert_equal 1, client.rest.scan("HTTP/1.1").size, path
      end
    end

    def test_hints_say_nothing_of_framing
      client = client().request("GET", "/hints")
      assert_equal [103, [%w[link a]]], client.response.to_a.values_at(1, 2)
      assert_equal "hinted", client.response.body
    end

    def test_how_long_the_connection_lives_is_ours_to_say
      assert_nil client.get("/keep-alive")["keep-alive"]
    end

    def test_no_trailer_frames_the_message
      client = client()
      client.request("GET", "/trailers")
      client.request("GET", "/", "Connection: close")
      assert_includes client.rest, "1\r\na\r\n0\r\nx: y\r\n\r\nHTTP/1.1 200 OK"
      client = client()
      client << "POST /request-trailers HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\nX-Sum: 1\r\n\r\n"
      assert_equal '["x-sum"]', client.response.body
    end

    def test_a_later_minor_version_is_served_as_1_1
      assert_equal "GET HTTP/1.1", client.request("GET", "/", version: "1.2").response.body
    end

    # A coding that is not chunked leaves open where the body ends.
    def test_a_body_without_an_end_is_a_bad_request
      %w[gzip identity gzip,deflate].each do |coding|
        assert_equal 400, client.write("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: #{coding}\r\n\r\n").response.status
      end
    end

    # Rack 2 asks headers for nothing but each.
    def test_headers_need_not_be_a_hash
      answer = client.get("/pairs")
      assert_equal [200, "pairs", %w[a b]], [answer.status, answer.body, answer["set-cookie"]]
      %w[/pairs-stream /pairs-hijack /each].each do |path|
        answer = client.get(path)
        assert_equal [200, path[/pairs|each/]], [answer.status, answer.body.empty? ? client.rest : answer.body], path
      end
    end
  end
end
