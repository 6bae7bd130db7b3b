# frozen_string_literal: true

require "time"
require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # HTTP/1.0 and 1.1 as a client sees them (RFC 9110, 9112).
  # Covers serving/request_handler.rb, serving/server.rb
  class HTTPTest < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      QUICK = []
      NOW = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }
      Parts = Struct.new(:parts, :wait, :began) do
        def each
          parts.each { |part| yield part; sleep wait if wait }
          QUICK << (NOW.call - began < 0.001) # after that the server may give others their turn
        end
      end

      text = { "content-type" => "text/plain" }
      run(lambda do |env|
        began = NOW.call
        body = env["rack.input"]&.read.to_s
        case env["PATH_INFO"]
        when "/slow" then sleep 0.1
        when "/no-content" then next [204, {}, []]
        when "/not-modified" then next [304, { "etag" => "\"a\"" }, []]
        when "/chunked" then next [200, text, Parts.new(%w[one two three], 0.01, began)]
        when "/gathered" then next [200, text, Parts.new(%w[one two three], nil, began)]
        when "/quick" then next [200, text, [QUICK.slice!(0..).join(" ")]]
        when "/nothing" then next [200, text, Parts.new([], nil, began)]
        when "/length" then next [200, text.merge("content-length" => "4"), ["four"]]
        when "/closing" then next [200, text.merge("connection" => "close"), ["bye"]]
        when "/dated" then next [200, text.merge("date" => "Thu, 01 Jan 1970 00:00:00 GMT"), ["old"]]
        end
        next [200, text, []] if env["PATH_INFO"] == "/none"

        [200, text, ["#{env["REQUEST_METHOD"]} #{env["PATH_INFO"]}?#{env["QUERY_STRING"]} #{env["HTTP_HOST"]} #{body}"]]
      end)
    RUBY

    def server = shared_server(APP)

    def test_a_connection_serves_one_request_after_another
      client = client()
      5.times do |number|
        answer = client.get("/#{number}")
        assert_equal [200, "GET /#{number}? example.com "], [answer.status, answer.body]
        assert_nil answer["connection"]
      end
    end

    def test_pipelined_requests_are_answered_in_their_order
      client = client()
      paths = Array.new(100) { |number| number % 10 == 3 ? "/slow?#{number}" : "/fast?#{number}" }
      client << paths.map { |path| "POST #{path} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody" }.join
      assert_equal(paths.map { |path| "POST #{path} a body" }, paths.map { client.response.body })
      assert client.silent?
    end

    def test_pipelined_requests_cut_anywhere_are_the_same_requests
      requests = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n" \
                 "POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" \
                 "POST /c HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nde"
      expected = ["GET /a? a ", "POST /b? a abc", "POST /c? a de"]
      (1...requests.bytesize).step(3) do |cut|
        client = client()
        client << requests.byteslice(0, cut)
        client << requests.byteslice(cut..)
        assert_equal expected, Array.new(3) { client.response.body }, "cut at #{cut}"
        client.close
      end
    end

    def test_http_1_0_closes_unless_it_is_asked_to_stay
      answer = client.request("GET", "/a", version: "1.0").response
      assert_equal ["HTTP/1.1", 200, "close"], [answer.version, answer.status, answer["connection"]]

      client = client()
      2.times do
        answer = client.request("GET", "/a", "Connection: keep-alive", version: "1.0").response
        assert_equal %w[keep-alive 20], [answer["connection"], answer["content-length"]]
      end
      client.request("GET", "/a", version: "1.0").response
      assert_predicate client, :eof?
    end

    def test_http_1_0_needs_no_host_and_gets_no_chunks
      client = client()
      answer = client.request("GET", "/chunked", host: nil, version: "1.0").response
      assert_equal [nil, nil, "onetwothree"], [answer["transfer-encoding"], answer["content-length"], answer.body]
      assert answer.ended
    end

    def test_a_client_may_ask_to_close
      client = client()
      answer = client.get("/a", "Connection: x, CLOSE")
      assert_equal "close", answer["connection"]
      assert_predicate client, :eof?
    end

    def test_an_app_may_ask_to_close
      client = client()
      answer = client.get("/closing")
      assert_equal %w[close bye], [answer["connection"], answer.body]
      assert_predicate client, :eof?
    end

    def test_a_chunked_body_comes_decoded
      client = client()
      client << "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n\r\n" \
                "4;name=value\r\nWiki\r\n05\r\npedia\r\nE\r\n in\r\n\r\nchunks.\r\n0\r\nTrailer: x\r\n\r\n"
      assert_equal "POST /a? a Wikipedia in\r\n\r\nchunks.", client.response.body
      assert_equal 200, client.get("/next").status
    end

    def test_a_body_in_parts_is_chunked_if_it_waits_and_has_a_length_if_it_does_not
      client = client()
      waiting, empty = client.get("/chunked"), client.get("/nothing")
      assert_equal ["chunked", nil, "onetwothree"], [waiting["transfer-encoding"], waiting["content-length"], waiting.body]
      assert_equal [nil, "0", ""], [empty["transfer-encoding"], empty["content-length"], empty.body]
      client.get("/quick") # forgets these
      answers = Array.new(20) { client.get("/gathered") }
      quick = client.get("/quick").body.split
      gathered = answers.zip(quick).filter_map { |answer, was| answer if was == "true" } # a busy machine interrupts some
      assert_equal [[nil, "11", "onetwothree"]], gathered.map { |one| [one["transfer-encoding"], one["content-length"], one.body] }.uniq
    end

    # Rack::Lint would not let an app answer HEAD with a body.
    def test_head_gets_the_head_alone
      client = client(to: shared_server(APP, name: :without_lint, lint: false))
      %w[/ /chunked /gathered /length /nothing].each { |path| assert_equal 200, client.get(path, head: true).status }
      assert_equal "4", client.get("/length", head: true)["content-length"]
      assert_equal "20", client.get("/", head: true)["content-length"]
      assert_equal "GET /? example.com ", client.get("/").body
      assert_equal 200, client(to: server).get("/none", head: true).status
    end

    def test_204_and_304_have_no_body_and_no_length
      client = client()
      { "/no-content" => 204, "/not-modified" => 304 }.each do |path, status|
        answer = client.get(path)
        assert_equal [status, nil, nil], [answer.status, answer["content-length"], answer["transfer-encoding"]]
        assert client.silent?
      end
      assert_equal 200, client.get("/").status
    end

    def test_a_client_that_expects_to_be_told_is_told_to_go_on
      [3, 1_000_000].each do |size|
        client = client()
        client << "PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: #{size}\r\nExpect: 100-Continue\r\n\r\n"
        assert_equal 100, client.response.status
        client << ("x" * size)
        assert_equal "PUT /a? a #{"x" * size}", client.response.body
        assert_equal 200, client.get("/").status
      end
    end

    def test_a_client_that_does_not_wait_is_not_told
      client = client()
      client << "PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nok"
      assert_equal "PUT /a? a ok", client.response.body
      client << "GET /b HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n" # there is nothing to wait for
      assert_equal 200, client.response.status
      client << "PUT /c HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n" # an old client does not know it
      assert client.silent?
      client << "ok"
      assert_equal 200, client.response.status
    end

    def test_a_target_may_be_absolute
      client = client()
      client << "GET http://other.example:81/path?query HTTP/1.1\r\nHost: example.com\r\n\r\n"
      assert_equal "GET /path?query other.example:81 ", client.response.body
      client << "GET http://other.example HTTP/1.1\r\nHost: example.com\r\n\r\n"
      assert_equal "GET /? other.example ", client.response.body
    end

    def test_options_may_be_about_the_whole_server
      client = client()
      client << "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"
      assert_equal "OPTIONS *? a ", client.response.body
    end

    def test_every_response_has_one_date
      client = client()
      %w[/ /chunked /no-content].each { |path| assert_in_delta Time.now, Time.httpdate(client.get(path)["date"]), 10 }
      assert_equal "Thu, 01 Jan 1970 00:00:00 GMT", client.get("/dated")["date"]
      client << "bad\r\n\r\n"
      assert_in_delta Time.now, Time.httpdate(client.response["date"]), 10
    end

    def test_a_client_that_has_ended_its_side_is_still_answered
      client = client()
      client << "GET /slow HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\nGET /chunked HTTP/1.1\r\nHost: a\r\n\r\n"
      client.close_write
      assert_equal ["GET /slow? a ", "GET /b? a ", "onetwothree"], Array.new(3) { client.response.body }
      assert_predicate client, :eof?
    end

    def test_a_client_that_ends_its_side_within_a_request_is_let_go
      ["GET / HTT", "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab"].each do |beginning|
        client = client()
        client << beginning
        client.close_write
        assert_equal "", client.rest
      end
    end

    def test_empty_lines_before_a_request_are_passed_over
      client = client()
      client << "\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n\r\n"
      client << "GET /b HTTP/1.1\r\nHost: a\r\n\r\n"
      assert_equal ["GET /a? a ", "GET /b? a "], Array.new(2) { client.response.body }
    end

    def test_what_follows_a_refused_request_is_never_a_request
      smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
      ["GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
       "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n",
       "GET / HTTP/1.1\r\n\r\n"].each do |bad|
        client = client()
        client << "GET /good HTTP/1.1\r\nHost: a\r\n\r\n#{bad}#{smuggled}"
        assert_equal [200, 400], [client.response.status, client.response.status]
        client.write_as_taken(smuggled * 1000)
        assert_equal "", client.rest
      end
      refute_includes server.log, "smuggled"
    end

    def test_a_refusal_reaches_a_client_that_is_still_sending
      client = client()
      client << "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999\r\n\r\n"
      client.write_as_taken("x" * 3_000_000)
      assert_equal 413, client.response.status
    end
  end
end
