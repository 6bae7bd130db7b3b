# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # Fields behind a chunked body, of requests and responses (RFC 9110, 6.5).
  class TrailersTest < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      TEXT = { "content-type" => "text/plain", "trailer" => "server-timing" }.freeze
      run(lambda do |env|
        case env["PATH_INFO"]
        when "/request"
          before = env["fairlead.request_trailers"].dup
          env["rack.input"].read
          [200, { "content-type" => "text/plain" }, [[before, env["fairlead.request_trailers"]].inspect]]
        when "/array"
          env["fairlead.response_trailers"] = { "server-timing" => "app;dur=1", "x" => "2" }
          [200, TEXT.dup, ["body"]]
        when "/each"
          parts = 0
          env["fairlead.response_trailers"] = -> { { "server-timing" => "parts;dur=#{parts}" } }
          [200, TEXT.dup, Enumerator.new { |out| 3.times { |part| out << part.to_s; parts += 1; sleep 0.005 } }]
        when "/call"
          [200, TEXT.dup, ->(stream) { stream.write("body"); env["fairlead.response_trailers"] = { "server-timing" => "a" }; stream.close }]
        when "/none" then [200, TEXT.dup, ["body"]]
        when "/unannounced"
          env["fairlead.response_trailers"] = { "server-timing" => "a" }
          [200, { "content-type" => "text/plain" }, Enumerator.new { |out| out << "bo"; sleep 0.005; out << "dy" }]
        when "/injection"
          env["fairlead.response_trailers"] = { "server-timing" => "a\r\nx: 1" }
          [200, TEXT.dup, ["body"]]
        end
      end)
    RUBY

    CHUNKED = "POST /request HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"

    def server = shared_server(APP, "--body-buffer", "1000")

    def test_those_of_a_request_that_came_whole_are_there_at_once
      fields = "X-Sum:  12 \r\nX-Sum: 13\r\nEmpty:\r\n"
      trailers = { "x-sum" => "12, 13", "empty" => "" }
      assert_equal [trailers, trailers].inspect, client.write("#{CHUNKED}1\r\na\r\n0\r\n#{fields}\r\n").response.body
      in_pieces = client()
      "#{CHUNKED}1\r\na\r\n0\r\n#{fields}\r\n".each_char { |byte| in_pieces.write(byte) }
      assert_equal [trailers, trailers].inspect, in_pieces.response.body
    end

    def test_those_of_a_longer_body_are_there_too
      answer = client.write("#{CHUNKED}1000\r\n#{"a" * 4096}\r\n0\r\nX-Sum: 12\r\n\r\n").response
      assert_equal [{ "x-sum" => "12" }, { "x-sum" => "12" }].inspect, answer.body
    end

    def test_those_of_a_body_that_is_read_as_it_comes_are_there_at_its_end
      server = with_server(APP, "--body-buffer", "1000", "--stream-request-bodies")
      answer = client(to: server).write("#{CHUNKED}1000\r\n#{"a" * 4096}\r\n0\r\nX-Sum: 12\r\n\r\n").response
      assert_equal [{}, { "x-sum" => "12" }].inspect, answer.body
    end

    def test_without_any_there_is_an_empty_hash
      assert_equal [{}, {}].inspect, client.write("#{CHUNKED}1\r\na\r\n0\r\n\r\n").response.body
    end

    # They could say something about the request that a proxy has not seen.
    def test_they_never_become_headers
      client = client()
      client << "#{CHUNKED}1\r\na\r\n0\r\nContent-Length: 5\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n"
      assert_equal 200, client.response.status
      assert_equal 200, client.get("/none").status
    end

    def test_those_of_a_response_follow_its_body
      { "/array" => "server-timing: app;dur=1\r\nx: 2\r\n", "/each" => "server-timing: parts;dur=3\r\n",
        "/call" => "server-timing: a\r\n", "/none" => "" }.each do |path, fields|
        client = client()
        client.request("GET", path)
        client.request("GET", "/none", "Connection: close")
        assert_includes client.rest, "0\r\n#{fields}\r\nHTTP/1.1 200 OK", path
      end
    end

    def test_what_was_not_announced_or_cannot_be_sent_is_left_out
      assert_equal "body", client.get("/unannounced").body
      answer = client.request("GET", "/array", version: "1.0").response
      assert_equal ["body", nil], [answer.body, answer["transfer-encoding"]]
      assert_equal "", client.get("/array", head: true).body
    end

    def test_one_that_would_split_the_response_is_an_error
      client = client()
      answer = client.get("/injection")
      assert_equal [500, "Internal Server Error\n"], [answer.status, answer.body]
      assert_equal 200, client.get("/none").status
    end
  end
end
