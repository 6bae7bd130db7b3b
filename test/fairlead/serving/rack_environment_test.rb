# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # The environment of the Rack 3 specification.
  # Covers serving/environment_template.rb, serving/request.rb
  class RackEnvironmentTest < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      run(lambda do |env|
        seen = env.select { |_, value| value.is_a?(String) || value.nil? }
        seen["classes"] = env.to_h { |key, value| [key, value.class.name] }
        seen["frozen"] = env.frozen?
        status = env["REQUEST_METHOD"] == "CONNECT" ? 405 : 200 # the answer to that has no body
        [status, { "content-type" => "application/octet-stream" }, [Marshal.dump(seen)]]
      end)
    RUBY

    def server = shared_server(APP)

    def test_every_key_of_the_specification
      env = env_of("GET /a%20b/c?d=e&f HTTP/1.1\r\nHost: example.com:8080\r\n\r\n")
      expected = {
        "REQUEST_METHOD" => "GET", "SCRIPT_NAME" => "", "PATH_INFO" => "/a%20b/c", "QUERY_STRING" => "d=e&f",
        "SERVER_NAME" => "example.com", "SERVER_PORT" => "8080", "SERVER_PROTOCOL" => "HTTP/1.1",
        "HTTP_HOST" => "example.com:8080", "REMOTE_ADDR" => "127.0.0.1", "rack.url_scheme" => "http",
        "REQUEST_URI" => "/a%20b/c?d=e&f", "REQUEST_PATH" => "/a%20b/c"
      }
      assert_equal expected, env.slice(*expected.keys)
      assert_match(/\Afairlead/, env["SERVER_SOFTWARE"])
      %w[rack.input rack.errors rack.response_finished].each { |key| assert env["classes"][key], key }
      refute env["frozen"]
      assert_empty env.keys.grep(/CONTENT_/) + env["classes"].keys.grep(/\Arack\.(version|multi|run_once)/)
    end

    # The core keeps what the usual request begins with: nothing of one may be seen in the next.
    def test_no_request_sees_anything_of_another
      usual = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n"
      others = ["POST /b?c HTTP/1.0\r\nHost: b:1\r\nContent-Length: 1\r\nCookie: d\r\n\r\ne", "GET /f HTTP/1.0\r\n\r\n",
                "OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n", "PUT /?g HTTP/1.1\r\nHost: a:2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", usual]
      expected = [usual, *others].to_h { |request| [request, stable(env_of(request, to: fresh))] }
      [usual, usual, *others, usual, *others.reverse, usual, usual].each do |request|
        assert_equal expected[request], stable(env_of(request)), request
      end
    end

    def test_a_request_without_a_host_has_the_name_of_the_server
      ["GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHost:\r\n\r\n"].each do |request|
        env = env_of(request)
        refute_includes env, "HTTP_HOST"
        assert_equal ["127.0.0.1", server.port.to_s], env.values_at("SERVER_NAME", "SERVER_PORT")
      end
    end

    def test_hosts_of_all_kinds
      { "a" => %w[a 80], "a:" => %w[a 80], "a:81" => %w[a 81], "[::1]" => %w[[::1] 80],
        "[::1]:82" => %w[[::1] 82], "127.0.0.1:83" => %w[127.0.0.1 83] }.each do |host, expected|
        env = env_of("GET / HTTP/1.1\r\nHost: #{host}\r\n\r\n")
        assert_equal [host.chomp(":"), *expected], env.values_at("HTTP_HOST", "SERVER_NAME", "SERVER_PORT")
      end
    end

    # As Puma has it: what an app makes of these is the URL that the client has asked for.
    def test_a_proxy_says_whether_its_client_speaks_tls
      { "X-Forwarded-Proto: https" => %w[https 443], "X-Forwarded-Proto: https, http" => %w[https 443],
        "X-Forwarded-Scheme: https" => %w[https 443], "X-Forwarded-Ssl: on" => %w[https 443],
        "X-Forwarded-Proto: http" => %w[http 80], "X-Forwarded-Proto: http\r\nX-Forwarded-Proto: https" => %w[http 80],
        "X-Forwarded-Ssl: off" => %w[http 80], "X_Forwarded_Ssl: on" => %w[http 80], "X-Other: https" => %w[http 80] }.each do |field, expected|
        env = env_of("GET / HTTP/1.1\r\nHost: a\r\n#{field}\r\n\r\n")
        assert_equal expected, env.values_at("rack.url_scheme", "SERVER_PORT"), field
      end
      env = env_of("GET / HTTP/1.1\r\nHost: a:80\r\nX-Forwarded-Proto: https\r\n\r\n")
      assert_equal %w[https 80], env.values_at("rack.url_scheme", "SERVER_PORT")
    end

    def test_targets_of_all_forms
      { "/" => ["/", ""], "/?" => ["/", ""], "/a?b?c" => ["/a", "b?c"], "//a//b" => ["//a//b", ""], "/a;b=c?d;e" => ["/a;b=c", "d;e"],
        "/%C3%A4%00%2f" => ["/%C3%A4%00%2f", ""], "http://x/y?z" => ["/y", "z"], "http://x" => ["/", ""],
        "http://x?z" => ["/", "z"] }.each do |target, expected|
        env = env_of("GET #{target} HTTP/1.1\r\nHost: a\r\n\r\n")
        assert_equal [*expected, target, expected.first], env.values_at("PATH_INFO", "QUERY_STRING", "REQUEST_URI", "REQUEST_PATH")
      end
      assert_equal "*", env_of("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")["PATH_INFO"]
      assert_equal "a:443", env_of("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", status: 405)["PATH_INFO"]
    end

    def test_methods_of_all_kinds
      %w[GET POST PUT PATCH DELETE OPTIONS TRACE PROPFIND M-SEARCH get].each do |method|
        assert_equal method, env_of("#{method} / HTTP/1.1\r\nHost: a\r\n\r\n")["REQUEST_METHOD"]
      end
    end

    def test_fields_that_come_several_times_are_joined
      env = env_of("GET / HTTP/1.1\r\nHost: a\r\nAccept: x\r\nX-Own: 1\r\nCookie: c=1\r\nACCEPT: y\r\nx-own: 2\r\n" \
                   "Cookie: d=2\r\nX-Own:\r\n\r\n")
      assert_equal ["x, y", "1, 2, ", "c=1; d=2"], env.values_at("HTTP_ACCEPT", "HTTP_X_OWN", "HTTP_COOKIE")
    end

    # Joined by copying, they took ten times as long.
    timing def test_fields_that_come_many_times_cost_no_more_than_others
      requests = [->(number) { "x-a#{number}" }, ->(_) { "x-a" }, ->(_) { "cookie" }].map do |name|
        "GET /hello HTTP/1.1\r\nHost: a\r\n#{Array.new(250) { |number| "#{name.call(100 + number)}: #{"v" * 490}\r\n" }.join}\r\n"
      end
      server = shared_server("run ->(_) { [200, {}, ['ok']] }", name: :plain, lint: false)
      client = client(to: server)
      rounds = Array.new(8) do
        requests.map { |request| duration { 20.times { assert_equal 200, client.write(request).response.status } } }
      end
      different, same, cookies = rounds.transpose.map(&:min)
      assert_operator [same, cookies].max, :<, 3 * different
    end

    def test_values_are_taken_as_they_are
      env = env_of("GET / HTTP/1.1\r\nHost: a\r\nX-A: \t a  b \t\r\nX-B:\r\nX-C: \xC3\xA4\xFF\r\n\r\n".b)
      assert_equal ["a  b", "", "\xC3\xA4\xFF".b], env.values_at("HTTP_X_A", "HTTP_X_B", "HTTP_X_C")
      assert_equal [Encoding::BINARY], env.values_at("HTTP_X_C", "PATH_INFO").map(&:encoding).uniq
    end

    # "X_Y" and "X-Y" have one key: what a proxy sets, or takes away, must not come in by the other spelling.
    def test_a_name_with_an_underscore_never_stands_for_one_with_a_hyphen
      [%w[X-Forwarded-For X_Forwarded_For], %w[X_Forwarded_For X-Forwarded-For], %w[X-Forwarded-For X_Forwarded-For],
       %w[X-Own X_Own], %w[X_Own X-Own]].each do |names|
        fields = names.map { |name| "#{name}: #{name.include?("_") ? "forged" : "true"}\r\n" }.join
        env = env_of("GET / HTTP/1.1\r\nHost: a\r\n#{fields}\r\n")
        assert_equal "true", env["HTTP_#{names.first.upcase.tr("-", "_")}"], fields
      end
    end

    def test_names_with_underscores_do_not_reach_the_keys_of_the_server
      env = env_of("GET / HTTP/1.1\r\nHost: a\r\nContent_Length: 5\r\nContent_Type: x\r\nX_Request_Start: t=1\r\n" \
                   "Transfer_Encoding: chunked\r\n\r\n")
      assert_empty env.keys.grep(/CONTENT_|TRANSFER/)
      refute_equal "t=1", env["HTTP_X_REQUEST_START"]
    end

    def test_content_headers_have_keys_of_their_own
      env = env_of("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Type: text/x\r\n\r\na")
      assert_equal %w[1 text/x], env.values_at("CONTENT_LENGTH", "CONTENT_TYPE")
      assert_empty env.keys.grep(/HTTP_CONTENT/)
    end

    # RFC 9112, 7.1.3; apps read as many bytes as they are told of.
    def test_a_chunked_body_that_has_come_whole_has_a_length_and_is_chunked_no_more
      chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
      { "0\r\n\r\n" => "0", "3\r\nabc\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\n" => "13" }.each do |body, length|
        assert_equal [length, nil], env_of(chunked + body).values_at("CONTENT_LENGTH", "HTTP_TRANSFER_ENCODING")
      end
      long = "#{chunked}61a80\r\n#{"x" * 400_000}\r\n0\r\n\r\n" # more than is kept in memory
      assert_equal ["400000", nil], env_of(long).values_at("CONTENT_LENGTH", "HTTP_TRANSFER_ENCODING")
    end

    def test_the_time_in_the_queue_counts_from_the_first_byte
      client = client()
      before = Time.now.to_f
      client << "G"
      assert client.silent?(0.5)
      continued = Time.now.to_f
      client << "ET / HTTP/1.1\r\nHost: a\r\n\r\n"
      start = Marshal.load(client.response.body)["HTTP_X_REQUEST_START"]
      assert_match(/\At=\d+\.\d{6}\z/, start)
      assert_includes before - 0.01..continued - 0.01, Float(start.delete_prefix("t="))
      kept = env_of("GET / HTTP/1.1\r\nHost: a\r\nX-Request-Start: t=123.5\r\n\r\n")
      assert_equal "t=123.5", kept["HTTP_X_REQUEST_START"]
    end

    def test_long_and_many_fields
      fields = Array.new(90) { |number| "X-#{number}-#{"n" * number}: #{"v" * number}\r\n" }
      env = env_of("GET / HTTP/1.1\r\nHost: a\r\n#{fields.join}\r\n")
      90.times { |number| assert_equal "v" * number, env["HTTP_X_#{number}_#{"N" * number}"] }
      name = "X-#{"long" * 1000}"
      assert_equal "v", env_of("GET / HTTP/1.1\r\nHost: a\r\n#{name}: v\r\n\r\n")["HTTP_#{name.upcase.tr("-", "_")}"]
    end

    def test_a_unix_socket
      server = with_server(APP, "--bind", "unix:app.sock")
      client = HTTPClient.new(server.connect(unix: server.path("app.sock")))
      env = Marshal.load(client.get("/").body)
      assert_equal %w[127.0.0.1 example.com], env.values_at("REMOTE_ADDR", "SERVER_NAME")
    end

    # Else no app would know its proxy again: "::ffff:10.0.0.1" is in none of the networks that Rack and Rails trust.
    def test_a_client_has_its_own_kind_of_address_whatever_the_listener_has
      server = with_server(APP, "--bind", "http://[::]:0")
      { "127.0.0.1" => "127.0.0.1", "::1" => "::1" }.each do |address, expected|
        socket = TCPSocket.new(address, server.port)
        (@clients ||= []) << (client = HTTPClient.new(socket))
        assert_equal expected, Marshal.load(client.get("/").body)["REMOTE_ADDR"]
      end
    end

    # As Puma has them.
    def test_a_target_beyond_ascii_is_handed_on_as_it_came
      env = env_of("GET /gr\xC3\xB6\xC3\x9Fe/\xFF?q=\xC3\xBC\x80 HTTP/1.1\r\nHost: a\r\n\r\n".b)
      values = env.values_at("PATH_INFO", "QUERY_STRING", "REQUEST_URI")

      assert_equal ["/gr\xC3\xB6\xC3\x9Fe/\xFF".b, "q=\xC3\xBC\x80".b, "/gr\xC3\xB6\xC3\x9Fe/\xFF?q=\xC3\xBC\x80".b], values
      assert_equal [Encoding::BINARY], values.map(&:encoding).uniq
    end

    private

    def env_of(request, to: server, status: 200)
      answer = client(to:).write(request).response
      assert_equal status, answer.status, server.log
      Marshal.load(answer.body)
    end

    def fresh = shared_server(APP, name: :fresh)

    def stable(env)
      env.except("HTTP_X_REQUEST_START", "SERVER_PORT").merge("classes" => env["classes"])
    end
  end
end
