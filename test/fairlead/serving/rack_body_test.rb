# frozen_string_literal: true

require "open3"
require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # What an app returns: bodies of all kinds, headers, and what happens at a response's end.
  # Covers serving/response_stream.rb
  class RackBodyTest < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      # Notes what becomes of it in the log: each line has the fiber it ran in.
      class Body
        def initialize(name, parts = [], &each) = (@name, @parts, @each = name, parts, each)
        def each(&) = @each ? @each.call(&) : @parts.each(&)
        def close = warn("#{@name}: closed in #{Fiber.current.object_id}")
      end

      TEXT = { "content-type" => "text/plain" }.freeze
      GATES = Hash.new { |gates, name| gates[name] = Thread::Queue.new }

      APPS = {
        "/array" => ->(_) { [200, TEXT, %w[one two] + [""] + ["three"]] },
        "/empty" => ->(_) { [200, TEXT, []] },
        "/proxied" => ->(_) { [200, TEXT, Rack::BodyProxy.new(["x" * 40_000, "y" * 500_000]) { warn "proxied: closed" }] },
        "/proxied-none" => ->(_) { [204, {}, Rack::BodyProxy.new(["x" * 40_000]) { nil }] },
        "/proxied-length" => ->(_) { [200, TEXT.merge("Content-Length" => "540000"), Rack::BodyProxy.new(["z" * 540_000]) { nil }] },
        "/proxied-chunks" => ->(_) {
          [200, TEXT.merge("transfer-encoding" => "chunked"), Rack::BodyProxy.new(["4\r\nabcd\r\n" * 9_000, "0\r\n\r\n"]) { nil }]
        },
        "/proxied-each" => ->(_) { [200, TEXT, Rack::BodyProxy.new(Body.new("inner", ["x" * 40_000, "y" * 500_000])) { nil }] },
        "/proxied-hijack" => ->(_) {
          closed = false
          taken = ->(socket) { socket.write(closed ? "closed before" : "open"); socket.close }
          [200, TEXT.merge("rack.hijack" => taken), Rack::BodyProxy.new([]) { closed = true }]
        },
        "/no-array" => ->(_) { [200, TEXT, Body.new("no-array", ["by each"]).tap { |body| def body.to_ary = nil }] },
        "/large" => ->(_) { [200, TEXT, ["x" * 5_000_000, "y" * 5_000_000]] },
        "/large-each" => ->(env) { [200, TEXT, Body.new(env["QUERY_STRING"]) { |&out| 50.times { out.call("z" * 100_000) } }] },
        "/gated" => ->(env) {
          [200, TEXT, Body.new("gated") { |&out| 3.times { |i| out.call("part #{i}"); GATES[env["QUERY_STRING"]].pop } }]
        },
        "/open" => ->(env) { GATES[env["QUERY_STRING"]] << true; [204, {}, []] },
        "/callable" => ->(_) { [200, TEXT, ->(stream) { stream.write("a"); stream << "b" << "c"; stream.flush; sleep 0.01; stream.write("d"); stream.close }] },
        "/upcase" => ->(_) { [200, TEXT, ->(stream) { while (part = stream.read(3)) do stream.write(part.upcase); stream.flush; end; stream.close }] },
        "/both" => ->(_) {
          [200, TEXT, lambda do |stream|
            reader = Async { size = 0; while (part = stream.read(50_000)) do size += part.bytesize; end; size }
            100.times { stream.write("y" * 50_000) }
            stream.write("read #{reader.wait}")
            stream.close
          end]
        },
        "/fork" => ->(_) {
          Process.wait(fork { GC.start; 20.times { IO.pipe }; GC.start; exit })
          [200, TEXT, [$?.exitstatus.to_s]]
        },
        "/thread" => ->(_) { [200, TEXT, ->(stream) { Thread.new { stream.write("from"); GATES["thread"].pop; stream.write(" a thread") }.join; stream.close }] },
        "/arrays" => ->(_) { [200, { "set-cookie" => %w[a=1 b=2], "x-one" => ["1"] }.merge(TEXT), ["ok"]] },
        "/injection" => ->(_) { [200, { "x-evil" => "a\r\nx-injected: 1" }.merge(TEXT), ["secret"]] },
        "/late-injection" => ->(_) { [200, TEXT.merge("x-fine" => "1", "x-evil" => ["a", "b\rc"]), Body.new("late", ["secret"])] },
        "/bad-name" => ->(_) { [200, TEXT.merge("x evil" => "1"), ["secret"]] },
        "/raise" => ->(_) { raise "on purpose" },
        "/r\xC3\xA4ise".b => ->(_) { raise "äbsichtlich" },
        "/raise-exception" => ->(_) { raise Exception, "on purpose" },
        "/exit" => ->(_) { exit 3 },
        "/throw" => ->(_) { throw :nobody },
        "/raise-each" => ->(_) { [200, TEXT, Body.new("raise-each") { |&out| out.call("some"); raise "on purpose" }] },
        "/raise-late" => ->(_) { [200, TEXT, Body.new("raise-late") { |&out| out.call("some"); sleep 0.01; raise "on purpose" }] },
        "/raise-close" => ->(_) { [200, TEXT, Body.new("raise-close", ["fine"]).tap { |body| def body.close = (super; raise "on purpose") }] },
        "/raise-callable" => ->(_) { [200, TEXT, ->(stream) { stream.write("some"); stream.flush; raise "on purpose" }] },
        "/stuck" => ->(_) { [200, TEXT, Body.new("stuck") { |&out| loop { out.call("x" * 100_000) } }] },
        "/finished" => ->(env) {
          warn "finished: app in #{Fiber.current.object_id}"
          [1, 2].each { |n| env["rack.response_finished"] << ->(e, s, h, x) { warn "finished: #{n} #{e.equal?(env)} #{s.inspect} #{h.class} #{x.inspect} in #{Fiber.current.object_id}" } }
          env["rack.response_finished"] << ->(*) { raise "a callback may not raise" }
          raise "on purpose" if env["QUERY_STRING"] == "raise"
          [200, TEXT, Body.new("finished", ["ok"])]
        },
        "/short" => ->(_) { [200, TEXT.merge("content-length" => "10"), ["short"]] },
        "/status" => ->(env) { [Integer(env["QUERY_STRING"]), TEXT, ["body"]] },
        "/no-response" => ->(_) { [nil, {}, nil] },
        "/rack-header" => ->(_) { [200, TEXT.merge("rack.private" => "1"), ["ok"]] },
        "/number-part" => ->(_) { [200, TEXT, [1]] },
        "/nil-parts" => ->(_) { [200, TEXT, [nil, "a", nil, "b"]] },
        "/many-nil-parts" => ->(_) { [200, TEXT, [nil, "a" * 200_000, nil, "b"]] },
        "/none" => ->(env) { [Integer(env["QUERY_STRING"]), {}, nil] },
        "/false" => ->(_) { [200, {}, false] },
        "/endless" => ->(env) { [Integer(env["QUERY_STRING"]), {}, Body.new("endless") { |&out| loop { out.call("x"); sleep 0.01 } }] },
        "/endless-callable" => ->(env) { [Integer(env["QUERY_STRING"]), {}, ->(stream) { loop { stream.write("x"); sleep 0.01 } }] },
        "/length-twice" => ->(_) { [200, { "Content-Length" => "2", "content-length" => "2" }, ["ok"]] },
        "/lengths" => ->(_) { [200, { "Content-Length" => "2", "content-length" => "3" }, ["ok"]] },
        "/early-rack2" => ->(_) { [200, { "Content-Type" => "text/plain", "Set-Cookie" => "a=1\nb=2" }, ["ok"]] }
      }.freeze
      run(lambda do |env|
        status, headers, body = APPS.fetch(env["PATH_INFO"]).call(env)
        [status, headers.dup, body]
      end)
    RUBY

    def server = shared_server(APP, "--response-buffer", "100000")

    # Rack::Lint raises where an app does wrong; this is about what the server makes of it.
    def careless = shared_server(APP, "--response-buffer", "100000", name: :careless, lint: false)

    def test_arrays
      client = client()
      answer = client.get("/array")
      assert_equal %w[onetwothree 11], [answer.body, answer["content-length"]]
      assert_equal ["", "0"], client.get("/empty").then { |empty| [empty.body, empty["content-length"]] }
      [server, careless].each do |server|
        assert_equal ("x" * 5_000_000) + ("y" * 5_000_000), client(to: server).get("/large").body
      end
    end

    # As on Puma: a download through a middleware keeps its progress bar.
    def test_a_body_that_can_be_an_array_has_a_length_however_large
      [server, careless].each do |server|
        client = client(to: server)
        answer = client.get("/proxied")
        assert_equal ["540000", nil, ("x" * 40_000) + ("y" * 500_000)],
                     [answer["content-length"], answer["transfer-encoding"], answer.body]
        assert_equal ["540000", ""], client.get("/proxied", head: true).then { |head| [head["content-length"], head.body] }
      end
      assert_equal [200, "540000", "x"], http2("/proxied").then { |status, length, body| [status, length, body[0]] }
      eventually("each is closed once") { careless.log.scan("proxied: closed").size == 3 }
    end

    def test_a_body_that_the_app_frames_itself_stays_as_it_is
      client = client(to: careless)
      answers = %w[/proxied-none /proxied-length /proxied-chunks /proxied-each /no-array].map { |path| client.get(path) }

      assert_equal [204, 200, 200, 200, 200], answers.map(&:status)
      assert_equal [nil, "540000", nil, nil, "7"], answers.map { |answer| answer["content-length"] }
      assert_equal [0, 540_000, 36_000, 540_000, 7], (answers.map { |answer| answer.body.bytesize })
      assert_equal "open", client(to: careless).request("GET", "/proxied-hijack").rest[/\w+\z/]
    end

    def test_a_large_body_in_parts_arrives_whole
      [server, careless].each { |server| assert_equal "z" * 5_000_000, client(to: server).get("/large-each").body }
    end

    def test_each_part_leaves_when_the_fiber_waits
      client = client()
      client.request("GET", "/gated?a")
      3.times do |number|
        assert_includes client.some, "part #{number}"
        client(to: server).get("/open?a")
      end
      assert_equal "0\r\n\r\n", client.read(5)
    end

    def test_callables_write
      assert_equal "abcd", client.get("/callable").body
    end

    def test_callables_read_while_they_write
      client = client(to: with_server(APP, "--stream-request-bodies"))
      client << "PUT /upcase HTTP/1.1\r\nHost: a\r\nContent-Length: 600000\r\n\r\n#{"abc" * 100_000}"
      assert_includes client.some, "HTTP/1.1 200 OK"
      client << ("def" * 100_000)
      assert client.rest.end_with?("0\r\n\r\n")
    end

    def test_one_fiber_may_read_while_another_one_writes
      client = client()
      client << "PUT /both HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\n\r\n"
      sender = Thread.new { 100.times { client << ("x" * 50_000) } }
      assert_equal "#{"y" * 5_000_000}read 5000000", client.response.body
      sender.join
    end

    # The child has the sockets of all connections, and must neither use nor shut them.
    def test_a_fork_within_a_request_leaves_all_connections_alone
      gated = client.request("GET", "/gated?fork")
      assert_includes gated.some, "part 0"
      3.times { assert_equal "0", client.get("/fork").body }
      3.times { client(to: server).get("/open?fork") }
      assert_match(/part 1.*part 2.*0\r\n\r\n\z/m, gated.rest_of_chunks)
    end

    def test_a_thread_may_write
      client = client()
      client.request("GET", "/thread")
      begun = client.some
      begun << client.some until begun.end_with?("from\r\n")
      client(to: server).get("/open?thread")
      assert_includes client.rest_of_chunks, "a thread"
    end

    def test_headers_may_have_several_values
      answer = client.get("/arrays")
      assert_equal [%w[a=1 b=2], "1"], [answer["set-cookie"], answer["x-one"]]
      answer = client(to: careless).get("/early-rack2")
      assert_equal [%w[a=1 b=2], "text/plain"], [answer["set-cookie"], answer["content-type"]]
    end

    def test_what_is_between_app_and_server_stays_there
      assert_nil client(to: careless).get("/rack-header")["rack.private"]
    end

    def test_a_header_that_would_split_the_response_is_refused_and_nothing_leaks
      %w[/injection /late-injection /bad-name].each do |path|
        client = client(to: careless)
        answer = client.get(path)
        assert_equal 500, answer.status
        assert_nil answer["x-injected"]
        refute_includes answer.body, "secret"
        assert_nil answer["x-fine"]
        assert_equal 200, client.get("/array").status
      end
      eventually("it is closed") { careless.log.include?("late: closed") }
      assert_equal 1, careless.log.scan("late: closed").size
    end

    def test_an_app_that_raises_is_answered_500_and_the_connection_lives_on
      client = client()
      %w[/raise /raise-exception /exit /throw /raise-each /no-response].each do |path|
        answer = client.get(path)
        assert_equal [500, nil], [answer.status, answer["connection"]], path
        refute_includes answer.body, "some"
      end
      assert_equal 200, client.get("/array").status
      assert_includes server.log, "on purpose"
    end

    def test_what_an_app_raises_is_logged_whatever_bytes_the_path_has
      assert_equal 500, client.write("GET /r\xC3\xA4ise HTTP/1.1\r\nHost: a\r\n\r\n".b).response.status
      assert_includes server.log, "fairlead: GET /r%c3%a4ise: "
      assert_includes server.log, "äbsichtlich"
    end

    def test_a_status_that_is_none_is_an_error
      %w[0 99 1000 100 199 -1].each do |status|
        client = client(to: careless)
        assert_equal [500, 200], [client.get("/status?#{status}").status, client.get("/array").status], status
      end
      assert_equal [599, "body"], client(to: careless).get("/status?599").then { |answer| [answer.status, answer.body] }
    end

    def test_a_part_that_is_no_string_is_an_error
      assert_equal 500, client(to: careless).get("/number-part").status
    end

    # What follows is as Puma or Falcon take it.
    def test_what_is_nil_is_nothing
      client = client(to: careless)
      assert_equal %w[ab 2], client.get("/nil-parts").then { |answer| [answer.body, answer["content-length"]] }
      assert_equal 200_001, client.get("/many-nil-parts").body.bytesize
      { "/none?204" => nil, "/none?304" => nil, "/none?200" => "0", "/false" => "0" }.each do |path, length|
        answer = client.get(path)
        assert_equal ["", length, nil], [answer.body, answer["content-length"], answer["transfer-encoding"]], path
      end
      assert_equal 200, client.get("/none?200", head: true).status
    end

    def test_a_body_that_is_not_sent_is_not_asked_for_but_closed
      client = client(to: careless)
      %w[/endless /endless-callable].each do |path|
        assert_equal [204, 304], [client.get("#{path}?204").status, client.get("#{path}?304").status]
        assert_equal 200, client.get("#{path}?200", head: true).status
      end
      assert_equal "onetwothree", client.get("/array").body
      eventually("each is closed") { careless.log.scan("endless: closed").size >= 3 }
      assert_equal 3, careless.log.scan("endless: closed").size
    end

    # A middleware of Rack 3 beside an app of Rack 2.
    def test_a_length_may_be_said_twice_but_only_one
      client = client(to: careless)
      assert_equal %w[2 ok], client.get("/length-twice").then { |answer| [answer["content-length"], answer.body] }
      assert_equal 500, client.get("/lengths").status
    end

    # The client must see that something is missing: neither a last chunk nor the whole length comes.
    def test_a_response_that_breaks_off_ends_the_connection
      { "/raise-late" => server, "/raise-callable" => server, "/short" => careless }.each do |path, server|
        client = client(to: server)
        text = client.request("GET", path).rest
        assert_includes text, "200 OK"
        refute text.end_with?("0\r\n\r\n"), path
      end
    end

    def test_a_response_to_an_old_client_that_breaks_off_is_reset
      client = client()
      client.request("GET", "/raise-late", version: "1.0")
      assert_raises(Errno::ECONNRESET) { loop { client.socket.readpartial(1000) } }
    end

    def test_a_body_is_closed_once_in_the_fiber_of_its_request
      client = client()
      %w[/raise-each /raise-late /raise-close /gated?b].each do |path|
        name, query = path.delete_prefix("/").split("?")
        before = server.log.scan("#{name}: closed").size
        client = client()
        client.request("GET", path)
        3.times { client(to: server).get("/open?#{query}") } if query
        client.response if path == "/raise-close"
        eventually("closing of #{name}") { server.log.scan("#{name}: closed").size == before + 1 }
        assert_equal 200, client().get("/array").status
        assert_equal before + 1, server.log.scan("#{name}: closed").size
      end
    end

    def test_a_body_is_closed_when_its_client_vanishes
      before = server.log.scan("stuck: closed").size
      client = client()
      client.request("GET", "/stuck")
      assert_includes client.some, "200 OK"
      client.reset
      eventually("closing") { server.log.scan("stuck: closed").size == before + 1 }
    end

    def test_a_body_is_closed_when_its_client_reads_no_more
      with_server(APP, "--write-timeout", "0.5", "--response-buffer", "100000") do |server|
        client(to: server).request("GET", "/stuck")
        eventually("closing") { server.log.include?("stuck: closed") }
      end
    end

    def test_callbacks_run_after_the_response_in_reverse_order
      answer = client.get("/finished")
      assert_equal "ok", answer.body
      lines = eventually { server.log.scan(/^finished: .*/).then { |found| found if found.size >= 4 } }
      fiber = lines.first[/\d+$/]
      assert_equal ["finished: app in #{fiber}", "finished: closed in #{fiber}",
                    "finished: 2 true 200 Hash nil in #{fiber}", "finished: 1 true 200 Hash nil in #{fiber}"], lines
    end

    def test_callbacks_are_told_of_an_error
      server = with_server(APP)
      client(to: server).get("/finished?raise")
      lines = eventually { server.log.scan(/^finished: \d.*/).then { |found| found if found.size >= 2 } }
      assert_match(/\Afinished: 2 true nil NilClass #<RuntimeError: on purpose> in/, lines.first)
    end

    private

    def http2(path)
      output, = Open3.capture2("curl", "-sS", "-m", "60", "-i", "--http2-prior-knowledge", "#{careless.address}#{path}", binmode: true)
      head, body = output.split("\r\n\r\n", 2)
      [head[/\AHTTP\/2 (\d+)/, 1].to_i, head[/^content-length: (\d+)/, 1], body]
    end
  end
end
