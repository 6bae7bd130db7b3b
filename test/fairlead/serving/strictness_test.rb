# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # What could be read in two ways is refused, with the status that says why and a closed connection: a proxy in front
  # may have read it in the other way.
  class StrictnessTest < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      run(lambda do |env|
        warn "seen: #{env["PATH_INFO"]}"
        env["rack.input"]&.read
        [200, { "content-type" => "text/plain" }, ["ok"]]
      end)
    RUBY

    LINE = "GET / HTTP/1.1\r\n"
    HOST = "Host: a\r\n"
    GET = "#{LINE}#{HOST}".freeze
    POST = "POST / HTTP/1.1\r\n#{HOST}".freeze
    CHUNKED = "#{POST}Transfer-Encoding: chunked\r\n\r\n".freeze
    LAST = "0\r\n\r\n"

    # name => [status, bytes]. "200" are neighbours that must not be caught by the same rule.
    REQUESTS = {
      "a plain one" => [200, "#{GET}\r\n"],
      "both a length and a coding" => [400, "#{POST}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n#{LAST}"],
      "both a coding and a length" => [400, "#{POST}Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n#{LAST}"],
      "a coding in HTTP/1.0" => [400, "POST / HTTP/1.0\r\n#{HOST}Transfer-Encoding: chunked\r\n\r\n#{LAST}"],
      "two lengths" => [400, "#{POST}Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc"],
      "the same length twice" => [400, "#{POST}Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc"],
      "a list of lengths" => [400, "#{POST}Content-Length: 3, 3\r\n\r\nabc"],
      "a length with a plus" => [400, "#{POST}Content-Length: +3\r\n\r\nabc"],
      "a negative length" => [400, "#{POST}Content-Length: -3\r\n\r\nabc"],
      "a length in hexadecimal" => [400, "#{POST}Content-Length: 0x3\r\n\r\nabc"],
      "a length with a point" => [400, "#{POST}Content-Length: 3.0\r\n\r\nabc"],
      "a length with an underscore" => [400, "#{POST}Content-Length: 1_0\r\n\r\nabc"],
      "an empty length" => [400, "#{POST}Content-Length:\r\n\r\nabc"],
      "a length beyond 64 bits" => [400, "#{POST}Content-Length: 18446744073709551619\r\n\r\nabc"],
      "a length beyond any limit" => [413, "#{POST}Content-Length: 18446744073709551615\r\n\r\n"],
      "a length with zeros before it" => [200, "#{POST}Content-Length: 003\r\n\r\nabc"],
      "an unknown coding" => [501, "#{POST}Transfer-Encoding: gzip, chunked\r\n\r\n#{LAST}"],
      "chunked twice" => [400, "#{POST}Transfer-Encoding: chunked, chunked\r\n\r\n#{LAST}"],
      "chunked not last" => [400, "#{POST}Transfer-Encoding: chunked, gzip\r\n\r\n#{LAST}"],
      "an unknown coding alone" => [400, "#{POST}Transfer-Encoding: identity\r\n\r\n"],
      "an obscured coding" => [400, "#{POST}Transfer-Encoding: \"chunked\"\r\n\r\n#{LAST}"],
      "a coding with a vertical tab" => [400, "#{POST}Transfer-Encoding: \vchunked\r\n\r\n#{LAST}"],
      "an empty coding" => [400, "#{POST}Transfer-Encoding:\r\n\r\n"],
      "a bare LF after the request line" => [400, "GET / HTTP/1.1\n#{HOST}\r\n"],
      "a bare LF after a field" => [400, "#{LINE}Host: a\n\r\n"],
      "a bare LF at the end" => [400, "#{GET}\n"],
      "a bare CR in a value" => [400, "#{GET}X: a\rb\r\n\r\n"],
      "a bare CR before a name" => [400, "#{GET}\rX: a\r\n\r\n"],
      "CR CR LF" => [400, "#{GET}X: a\r\r\n\r\n"],
      "a folded field" => [400, "#{GET}X: a\r\n b\r\n\r\n"],
      "a field folded with a tab" => [400, "#{GET}X: a\r\n\tb\r\n\r\n"],
      "a space before the first field" => [400, "#{LINE} #{HOST}\r\n"],
      "a space before a colon" => [400, "#{LINE}Host : a\r\n\r\n"],
      "a tab before a colon" => [400, "#{GET}X\t: a\r\n\r\n"],
      "a field without a colon" => [400, "#{GET}X\r\n\r\n"],
      "a field without a name" => [400, "#{GET}: a\r\n\r\n"],
      "a space in a name" => [400, "#{GET}X Y: a\r\n\r\n"],
      "a NUL in a value" => [400, "#{GET}X: a\0b\r\n\r\n"],
      "a NUL in a name" => [400, "#{GET}X\0Y: a\r\n\r\n"],
      "a control character in a value" => [400, "#{GET}X: a\x01b\r\n\r\n"],
      "DEL in a value" => [400, "#{GET}X: a\x7fb\r\n\r\n"],
      "a tab in a value" => [200, "#{GET}X: a\tb\r\n\r\n"],
      "bytes beyond ASCII in a value" => [200, "#{GET}X: \xc3\xa4\xff\r\n\r\n"],
      "bytes beyond ASCII in a name" => [400, "#{GET}X\xc3: a\r\n\r\n"],
      "no Host" => [400, "#{LINE}\r\n"],
      "two Hosts" => [400, "#{GET}Host: a\r\n\r\n"],
      "a Host with a path" => [400, "#{LINE}Host: a/b\r\n\r\n"],
      "a Host with a user" => [400, "#{LINE}Host: u@a\r\n\r\n"],
      "two names in one Host" => [400, "#{LINE}Host: a, b\r\n\r\n"],
      "a Host with a bad port" => [400, "#{LINE}Host: a:b\r\n\r\n"],
      "a bad Host beside an absolute target" => [400, "GET http://a/ HTTP/1.1\r\nHost: /\r\n\r\n"],
      "an absolute target without Host" => [400, "GET http://a/ HTTP/1.1\r\n\r\n"],
      "no version" => [400, "GET /\r\n#{HOST}\r\n"],
      "HTTP/2.0" => [505, "GET / HTTP/2.0\r\n#{HOST}\r\n"],
      "HTTP/0.9" => [505, "GET / HTTP/0.9\r\n#{HOST}\r\n"],
      "a preface of HTTP/2 that is wrong" => [505, "PRI * HTTP/2.0\r\n\r\nSN\r\n\r\n"],
      "a version in small letters" => [400, "GET / http/1.1\r\n#{HOST}\r\n"],
      "a version with two digits" => [400, "GET / HTTP/1.10\r\n#{HOST}\r\n"],
      "another protocol" => [400, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"],
      "two spaces before the target" => [400, "GET  / HTTP/1.1\r\n#{HOST}\r\n"],
      "two spaces before the version" => [400, "GET /  HTTP/1.1\r\n#{HOST}\r\n"],
      "a space behind the version" => [400, "GET / HTTP/1.1 \r\n#{HOST}\r\n"],
      "a tab for a space" => [400, "GET\t/ HTTP/1.1\r\n#{HOST}\r\n"],
      "a space before the method" => [400, " GET / HTTP/1.1\r\n#{HOST}\r\n"],
      "a method that is no token" => [400, "G(T / HTTP/1.1\r\n#{HOST}\r\n"],
      "an empty target" => [400, "GET HTTP/1.1\r\n#{HOST}\r\n"],
      "a target that is no path" => [400, "GET a HTTP/1.1\r\n#{HOST}\r\n"],
      "a target of another scheme" => [400, "GET ftp://a/ HTTP/1.1\r\n#{HOST}\r\n"],
      "an asterisk with GET" => [400, "GET * HTTP/1.1\r\n#{HOST}\r\n"],
      "a fragment" => [400, "GET /#a HTTP/1.1\r\n#{HOST}\r\n"],
      "a control character in the target" => [400, "GET /\x01 HTTP/1.1\r\n#{HOST}\r\n"],
      "too many empty lines" => [400, "\r\n\r\n\r\n#{GET}\r\n"],
      "an expectation that is not known" => [417, "#{GET}Expect: more\r\n\r\n"],
      "an expectation among others" => [417, "#{POST}Content-Length: 1\r\nExpect: 100-continue, more\r\n\r\na"],
      "a chunk size that is no number" => [400, "#{CHUNKED}x\r\n"],
      "a chunk size with a sign" => [400, "#{CHUNKED}+1\r\na\r\n#{LAST}"],
      "a chunk size with 0x" => [400, "#{CHUNKED}0x1\r\na\r\n#{LAST}"],
      "a chunk size with a space before" => [400, "#{CHUNKED} 1\r\na\r\n#{LAST}"],
      "an empty chunk size" => [400, "#{CHUNKED}\r\n"],
      "a chunk size beyond 64 bits" => [400, "#{CHUNKED}10000000000000001\r\na"],
      "a chunk beyond any limit" => [413, "#{CHUNKED}7fffffffffffffff\r\n#{"a" * 2000}"],
      "a chunk longer than its size" => [400, "#{CHUNKED}1\r\nab\r\n#{LAST}"],
      "a chunk line with a bare LF" => [400, "#{CHUNKED}1\na\r\n#{LAST}"],
      "chunk data ended by a bare LF" => [400, "#{CHUNKED}1\r\na\n#{LAST}"],
      "a chunk extension with a bare CR" => [400, "#{CHUNKED}1;a\rb\r\na\r\n#{LAST}"],
      "a chunk extension with a NUL" => [400, "#{CHUNKED}1;\0\r\na\r\n#{LAST}"],
      "a last chunk ended by a bare LF" => [400, "#{CHUNKED}0\n\n"],
      "a trailer without a colon" => [400, "#{CHUNKED}0\r\nX\r\n\r\n"],
      "a trailer with a NUL" => [400, "#{CHUNKED}0\r\nX: \0\r\n\r\n"],
      "a chunk extension" => [200, "#{CHUNKED}1;a=\"b\"\r\na\r\n#{LAST}"]
    }.transform_values { |status, bytes| [status, bytes.b] }.freeze

    def server = shared_server(APP, "--body-size", "1000")

    REQUESTS.each do |name, (status, bytes)|
      define_method("test_#{name.tr(" ", "_")}_is_#{status == 200 ? "served" : "refused"}") do
        assert_equal status, status_of(bytes) { |client| client.write_as_taken(bytes) }, "in one piece"
        in_pieces = status_of(bytes) { |client| bytes.each_char { |byte| client.write_as_taken(byte) } }
        assert_equal status, in_pieces, "byte by byte"
        [1, bytes.size / 3, bytes.size / 2, bytes.size - 2, bytes.size - 1].uniq.each do |cut|
          answer = status_of(bytes) do |client|
            client.write_as_taken(bytes[0, cut])
            client.write_as_taken(bytes[cut..])
          end
          assert_equal status, answer, "cut at #{cut}"
        end
      end
    end

    private

    # The status of the only answer: after a refusal the connection is closed and what follows is not looked at.
    def status_of(_bytes)
      client = client()
      yield client
      first = client.response
      return first.status if first.status == 200

      assert_equal "close", first["connection"]
      client.write_as_taken("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
      client.write_as_taken("\r\n\r\n")
      assert_equal "", client.rest
      refute_includes server.log, "/smuggled"
      first.status
    ensure
      client.close
    end
  end

  # Each limit can be set, and is seen at its bound and one beyond.
  class RequestLimitsTest < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      run ->(env) { [200, { "content-type" => "text/plain" }, [env["rack.input"]&.read.to_s.bytesize.to_s]] }
    RUBY

    # Puma takes a query of 10 KiB, and a head of 112 KiB with any number of fields.
    # https://github.com/puma/puma/blob/master/ext/puma_http11/puma_http11.c
    def test_as_much_as_puma_takes
      server = shared_server(APP, name: :usual)
      assert_equal 200, client(to: server).get("/#{"p" * 2000}?#{"q" * 10_240}").status
      assert_equal 200, client(to: server).get("/", "Cookie: #{"c" * 80_000}", *(["X-Field: #{"x" * 150}"] * 200)).status
    end

    FLAGS = %w[--request-line 100 --head-size 400 --headers 5 --body-size 1000 --body-buffer 100
               --idle-timeout 0.3 --head-timeout 0.2 --body-timeout 0.2 --access-log common].freeze

    def server = shared_server(APP, *FLAGS)

    def test_the_request_line
      path = "/#{"x" * (100 - "GET / HTTP/1.1".size)}"
      assert_equal 200, client.get(path).status
      refused 414, "GET #{path}x HTTP/1.1\r\nHost: a\r\n\r\n"
      refused 414, "GET #{path}#{"x" * 15}" # it is too long before it ends
      refused 414, "x" * 200
    end

    def test_the_number_of_fields
      assert_equal 200, client.get("/", "A: b", "A: b", "A: b", "A: b").status
      refused 431, "GET / HTTP/1.1\r\nHost: a\r\n#{"A: b\r\n" * 5}\r\n"
    end

    def test_the_size_of_the_head
      head = "GET / HTTP/1.1\r\nHost: a\r\nA: \r\n\r\n"
      fitting = head.sub("A: ", "A: #{"x" * (400 - head.size)}")
      assert_equal 200, client.write(fitting).response.status
      refused 431, fitting.sub("A: ", "A: x")
      refused 431, "GET / HTTP/1.1\r\nHost: a\r\nA: #{"x" * 1000}"
    end

    def test_the_size_of_a_body
      assert_equal "1000", client.request("PUT", "/", body: "x" * 1000).response.body
      refused 413, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n"
      refused 413, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n"
    end

    # Beyond body_buffer the app has the request already: it is told, and if it has nothing to say, the client is.
    def test_the_size_of_a_chunked_body
      chunked = "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
      assert_equal "1000", client.write("#{chunked}#{"64\r\n#{"x" * 100}\r\n" * 10}0\r\n\r\n").response.body
      refused 413, "#{chunked}3e9\r\n#{"x" * 1001}\r\n0\r\n\r\n"
    end

    def test_a_chunk_that_is_wrong_while_the_app_reads
      client = client()
      client << "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n#{"x" * 100}\r\n"
      assert client.silent?(0.02)
      client << "zz\r\n"
      assert_equal 400, client.response.status
      eventually("the line in the access log") { server.log.include?("\"PUT / HTTP/1.1\" 400 -") }
      assert_predicate client, :eof?
    end

    def test_what_is_refused_is_in_the_access_log
      refused 400, "GET /bad HTTP/1.1\r\nHost : a\r\n\r\n"
      refused 414, "GET /#{"x" * 200}"
      refused 413, "PUT /large HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n"
      client() << "GET /slow HTTP/1.1\r\n"
      { 400 => "GET /bad HTTP/1.1", 414 => "GET /#{"x" * 200}", 413 => "PUT /large HTTP/1.1",
        408 => "GET /slow HTTP/1.1" }.each do |status, line|
        eventually("the line of #{status}") { server.log.match?(/^127\.0\.0\.1 .*"#{line}" #{status} \d+$/) }
      end
    end

    def test_the_time_of_a_head
      assert_timed_out_after(0.2, "GET / HTTP/1.1\r\n")
    end

    def test_the_time_of_a_head_is_not_renewed_by_single_bytes
      client = client()
      assert_after(0.2) do
        "GET / HTTP/1.1\r\nA: #{"b" * 100}".each_char do |byte|
          client.write_as_taken(byte)
          break unless client.silent?(0.02)
        end
        assert_equal 408, client.response.status
      end
    end

    def test_the_time_of_a_body
      assert_timed_out_after(0.2, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\nab")
    end

    # The app waits in read: it learns that the rest will never come.
    def test_the_time_of_a_body_that_is_read_while_it_comes
      assert_timed_out_after(0.2, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 500\r\n\r\n#{"x" * 200}")
    end

    def test_the_time_between_requests
      assert_after(0.3) do
        client = client()
        assert_equal 200, client.get("/").status
        assert_predicate client, :eof?
      end
      assert_after(0.3) { assert_predicate client(), :eof? }
    end

    private

    def assert_timed_out_after(seconds, sent)
      client = nil
      assert_after(seconds) do
        client = client()
        client << sent
        assert_equal 408, client.response.status
      end
      assert_predicate client, :eof?
    end

    # Not before, and not much later; a busy machine may take its time. The block begins with what the server's clock starts
    # with: one that starts before this one would seem to run fast.
    def assert_after(seconds, &)
      server # its start takes time, too
      assert_includes seconds - 0.01..seconds + 5, duration(&)
    end

    def refused(status, bytes)
      client = client()
      client.write_as_taken(bytes)
      answer = client.response
      assert_equal [status, "close"], [answer.status, answer["connection"]]
      assert_equal "", client.rest
    end
  end
end
