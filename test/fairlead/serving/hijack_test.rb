# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # Apps that talk to the client themselves: full and partial hijack, upgrades; and what comes before a response.
  class HijackTest < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      TEXT = { "content-type" => "text/plain" }.freeze
      HELLO = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"

      # Answers line by line, until the client ends its side.
      ECHO = lambda do |io|
        while (line = io.read(1))
          line << io.read(1) until line.end_with?("\n")
          io.write("heard #{line}")
          io.flush
        end
        io.close
      end

      def in_thread(io) = Thread.new { io.write(HELLO); ECHO.call(io) }

      APPS = {
        "/stats" => ->(_) { [200, TEXT, [Fairlead.stats[:workers].sum { |worker| worker[:connections] }.to_s]] },
        "/hijack" => ->(env) { in_thread(env["rack.hijack"].call); [200, TEXT, ["ignored"]] },
        "/hijack-minus-one" => ->(env) { in_thread(env["rack.hijack"].call); [-1, {}, []] },
        "/hijack-wait" => ->(env) { env["rack.hijack"].call.tap { |io| io.write(HELLO); ECHO.call(io) }; [200, TEXT, []] },
        "/hijack-raise" => ->(env) { in_thread(env["rack.hijack"].call); raise "on purpose" },
        "/hijack-twice" => ->(env) {
          io = env["rack.hijack"].call
          io.write("#{HELLO}#{io.equal?(env["rack.hijack_io"])} #{io.equal?(env["rack.hijack"].call)} #{io.class}")
          io.close
          [200, TEXT, []]
        },
        "/hijack-body" => ->(env) {
          body = env["rack.input"]&.read
          io = env["rack.hijack"].call
          io.write("#{HELLO}#{body&.bytesize.inspect}\n")
          Thread.new { ECHO.call(io) }
          [200, TEXT, []]
        },
        "/hijack-unread" => ->(env) {
          io = env["rack.hijack"].call
          Thread.new { io.write(HELLO); io.write(io.read.bytesize.to_s); io.close }
          [200, TEXT, []]
        },
        "/hijack-late" => ->(env) {
          [200, TEXT, Enumerator.new { |out| out << "a"; sleep 0.01; out << begin env["rack.hijack"].call.class.to_s rescue $!.class.to_s end }]
        },
        "/large" => ->(_) { [200, TEXT, ["x" * 800_000]] },
        "/partial" => ->(_) { [200, TEXT.merge("rack.hijack" => ECHO), []] },
        "/partial-raise" => ->(_) { [200, TEXT.merge("rack.hijack" => ->(io) { io.write("some"); raise "on purpose" }), []] },
        "/upgrade" => ->(env) { [200, { "rack.protocol" => env["rack.protocol"]&.first }.compact, ECHO] },
        "/switch" => ->(_) { [101, { "connection" => "upgrade", "upgrade" => "echo" }, ECHO] },
        "/switch-to-nothing" => ->(_) { [101, { "connection" => "upgrade", "upgrade" => "echo" }, ["body"]] },
        "/hints" => ->(env) {
          env["rack.early_hints"].call("link" => ["</a.css>; rel=preload", "</b.js>; rel=preload"])
          env["rack.early_hints"].call("link" => "</c.js>; rel=preload")
          [200, TEXT, ["page"]]
        },
        "/bad-hints" => ->(env) {
          env["rack.early_hints"].call("link" => "</a.css>", "x-evil" => "a\rx-injected: 1", "x y" => "1")
          [200, TEXT, ["page"]]
        },
        "/late-hints" => ->(env) {
          [200, TEXT, Enumerator.new { |out| out << "a"; sleep 0.01; env["rack.early_hints"].call("link" => "</a>"); out << "b" }]
        },
        "/hints-to-nobody" => ->(env) {
          File.write("begun", "")
          sleep 0.01 until File.exist?("gone")
          env["rack.early_hints"].call("link" => "</a>")
          warn "hints to nobody: the app goes on"
          [200, TEXT, []]
        },
        "/has-hints" => ->(env) { [200, TEXT, [env.key?("rack.early_hints").to_s]] },
        "/after" => ->(env) {
          env["rack.after_reply"] << -> { warn "after reply: first" } << Object.new.tap { |object| def object.call = warn("after reply: second") }
          env["rack.after_reply"] << proc { |first| warn "after reply: #{first.class}" }
          env["rack.response_finished"] << ->(_, status, _, _) { warn "finished: #{status}" }
          [200, TEXT, []]
        }
      }.freeze
      run(lambda do |env|
        status, headers, body = APPS.fetch(env["PATH_INFO"]).call(env)
        [status, headers.dup, body]
      end)
    RUBY

    FLAGS = %w[--early-hints --access-log common --body-buffer 1000 --response-buffer 100000].freeze

    def server = shared_server(APP, *FLAGS)

    def streaming = shared_server(APP, *FLAGS, "--stream-request-bodies", name: :streaming)

    # Rack::Lint wraps what the app is given: without it apps have the socket itself.
    def bare = shared_server(APP, *FLAGS, name: :bare, lint: false)

    UPGRADE = ["Connection: Upgrade", "Upgrade: echo, other"].freeze

    def test_full_hijack_gives_the_connection_to_the_app
      { "/hijack" => [server, bare], "/hijack-minus-one" => [server], "/hijack-raise" => [server] }.each do |path, servers|
        servers.each do |server|
          client = client(to: server).request("GET", path)
          assert_equal "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n", client.read(38), path
          assert_equal "heard one", client.write("one\n").line_feed
          client.close_write
          assert_equal "", client.rest
        end
      end
    end

    def test_a_hijack_is_the_same_io_each_time
      assert_equal "true true TCPSocket", client.request("GET", "/hijack-twice").response.body
    end

    def test_what_was_read_ahead_comes_first
      client = client()
      client << "GET /hijack HTTP/1.1\r\nHost: a\r\n\r\nahead\nof "
      assert_includes [client.line, client.line, client.line], "connection: close"
      assert_equal "heard ahead", client.line_feed
      client << "it\n"
      assert_equal "heard of it", client.line_feed
    end

    def test_a_hijack_behind_a_response_that_is_not_sent_yet
      client = client()
      client << "GET /large HTTP/1.1\r\nHost: a\r\n\r\nGET /hijack HTTP/1.1\r\nHost: a\r\n\r\nahead\n"
      assert_equal 800_000, client.response.body.bytesize
      3.times { client.line }
      assert_equal "heard ahead", client.line_feed
    end

    def test_a_body_is_read_before_the_hijack_and_what_follows_after_it
      ["abc", "x" * 5000].each do |body|
        client = client().request("POST", "/hijack-body", body:)
        3.times { client.line }
        assert_equal body.bytesize.to_s, client.line_feed
        assert_equal "heard one", client.write("one\n").line_feed
      end
    end

    def test_a_body_that_was_not_read_is_in_the_socket
      client = client(to: streaming).request("POST", "/hijack-unread", body: "x" * 5000)
      client.close_write
      assert_equal "5000", client.response.body
    end

    # Half of its coding is used up: it could be given back only as something else.
    def test_a_chunked_body_has_to_be_read_before
      client = client(to: streaming)
      client << "POST /hijack-unread HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n800\r\n#{"x" * 2048}\r\n"
      assert_equal 500, client.response.status
      eventually("the error in the log") { streaming.log.include?("can no longer be hijacked") }
    end

    def test_a_response_that_has_begun_cannot_be_hijacked
      client = client().request("GET", "/hijack-late")
      assert_equal "aIOError", client.response.body
      assert_equal 200, client.get("/stats").status
    end

    def test_a_hijacked_connection_leaves_the_count
      client = client()
      before = Integer(client.get("/stats").body)
      hijacked = client().request("GET", "/hijack")
      hijacked.read(38)
      eventually("the connection has left the count") { Integer(client.get("/stats").body) <= before }
      assert_equal "heard one", hijacked.write("one\n").line_feed
    end

    def test_the_access_log_has_a_line_for_it
      client().request("GET", "/hijack-twice").response
      eventually("the line") { server.log.include?("\"GET /hijack-twice HTTP/1.1\" - -") }
    end

    def test_partial_hijack_talks_behind_the_head
      [server, bare].each do |server|
        client = client(to: server)
        client << "GET /partial HTTP/1.1\r\nHost: a\r\n\r\nahead\n"
        head = Array.new(5) { client.line }
        assert_equal ["HTTP/1.1 200 OK", "connection: close", ""], head.values_at(0, 2, 4)
        assert_equal "heard ahead", client.line_feed
        assert_equal "heard one", client.write("one\n").line_feed
        client.close_write
        assert_equal "", client.rest
      end
    end

    def test_a_partial_hijack_that_raises_ends_the_connection
      assert client().request("GET", "/partial-raise").rest.end_with?("\r\n\r\nsome")
      eventually("the error in the log") { server.log.include?("on purpose") }
    end

    def test_an_upgrade_changes_the_protocol
      [server, bare].each do |server|
        ["/upgrade", "/switch"].each do |path|
          client = client(to: server).request("GET", path, *UPGRADE)
          answer = client.response
          assert_equal [101, "echo", "upgrade", nil, nil],
                       [answer.status, answer["upgrade"], answer["connection"], answer["transfer-encoding"], answer["content-length"]]
          assert_equal "heard one", client.write("one\n").line_feed
          client.close_write
          assert_equal "", client.rest
        end
      end
    end

    def test_without_an_upgrade_asked_for_there_is_no_protocol
      ["Connection: close", "Connection: upgrade", "Upgrade: echo"].each do |field|
        client = client().request("GET", "/upgrade", field)
        client.close_write
        assert_equal 200, client.response.status
      end
    end

    def test_an_upgrade_to_nothing_is_an_error
      assert_equal 500, client.get("/switch-to-nothing", *UPGRADE).status
      assert_equal 500, client.request("GET", "/switch", version: "1.0").response.status
    end

    # It is neither a request that takes too long nor one whose client has gone.
    def test_no_deadline_of_a_request_ends_it
      server = with_server(APP, *FLAGS, "--request-timeout", "5", "--cancel-abandoned")
      clients = %w[/switch /upgrade /partial /hijack-wait].map { |path| client(to: server).request("GET", path, *UPGRADE) }
      clients.each { |client| nil until client.line.empty? }
      sleep 5.2
      clients.each { |client| assert client.silent?(0) }
      clients.each { |client| assert_equal "heard one", client.write("one\n").line_feed }
    end

    def test_draining_does_not_wait_for_what_was_hijacked_but_for_what_the_server_called
      server = with_server(APP, *FLAGS)
      client(to: server).request("GET", "/hijack").read(38)
      upgraded = client(to: server).request("GET", "/switch", *UPGRADE)
      assert_equal 101, upgraded.response.status
      server.signal(:TERM)
      server.wait_for_notification("STOPPING=1")
      assert_equal "heard one", upgraded.write("one\n").line_feed
      upgraded.close
      assert_predicate server.wait_for_end, :success?
    end

    def test_what_does_not_end_is_cancelled_when_the_time_is_over
      server = with_server(APP, *FLAGS, "--drain-timeout", "0.2")
      upgraded = client(to: server).request("GET", "/switch", *UPGRADE)
      assert_equal 101, upgraded.response.status
      assert_predicate server.stop, :success?
      assert_equal "", upgraded.rest
    end

    def test_early_hints_come_before_the_response
      [server, bare].each do |server|
        client = client(to: server).request("GET", "/hints")
        first = client.response
        assert_equal [103, ["</a.css>; rel=preload", "</b.js>; rel=preload"]], [first.status, first["link"]]
        assert_equal [103, "</c.js>; rel=preload"], client.response.then { |answer| [answer.status, answer["link"]] }
        assert_equal [200, "page"], client.response.then { |answer| [answer.status, answer.body] }
      end
    end

    def test_a_field_that_would_break_a_hint_is_left_out
      client = client(to: bare).request("GET", "/bad-hints") # which Rack::Lint would not let through
      assert_equal [%w[link </a.css>]], client.response.headers
      assert_equal 200, client.response.status
    end

    def test_old_clients_and_late_calls_get_no_hints
      assert_equal 200, client().request("GET", "/hints", version: "1.0").response.status
      assert_equal "ab", client.get("/late-hints").body
    end

    # puma 1640
    def test_a_client_that_has_gone_is_no_error_of_a_hint
      others = client()
      before = Integer(others.get("/stats").body)
      gone = client().request("GET", "/hints-to-nobody")
      eventually("it is there") { File.exist?(server.path("begun")) }
      gone.reset
      eventually("it has gone") { Integer(others.get("/stats").body) <= before }
      server.write("gone", "")
      eventually("the app goes on") { server.log.include?("hints to nobody: the app goes on") }
      refute_includes server.log, "GET /hints-to-nobody: "
    end

    def test_hints_have_to_be_asked_for
      assert_equal "false", client(to: with_server(APP)).get("/has-hints").body
    end

    def test_what_is_to_happen_after_the_reply
      client.get("/after")
      lines = eventually { server.log.scan(/^(?:after reply|finished): .*/).then { |found| found if found.size >= 4 } }
      assert_equal ["after reply: first", "after reply: second", "after reply: NilClass", "finished: 200"], lines
    end
  end
end
