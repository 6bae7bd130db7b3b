# frozen_string_literal: true

require_relative "../../helper"
require "json"
require "time"
require "stringio"

module Fairlead
  class AccessLogTest < Test
    REQUEST = Struct.new(:duration, :queue_time, :timed_out?, :times).new(0.1234567, 0.0012345, false, { cpu: 0.1000004, sleep: 0.0222218 })
    TIME = Time.new(2026, 3, 4, 5, 6, 7.25, "+02:00")

    def test_off_is_nothing_at_all
      assert_nil AccessLog.for(Configuration.new)
    end

    def test_common
      assert_equal %(192.0.2.7 - - [04/Mar/2026:05:06:07 +0200] "GET /path?a=1 HTTP/1.1" 200 1234\n),
                   common(env, 200, 1234)
      assert_equal %(192.0.2.7 - ada [04/Mar/2026:05:06:07 +0200] "GET /app/path HTTP/1.1" 304 -\n),
                   common(env("QUERY_STRING" => "", "SCRIPT_NAME" => "/app", "REMOTE_USER" => "ada"), 304, 0)
    end

    def test_a_unix_socket_has_no_remote_address
      assert_match(/\A- - - \[/, common(env("REMOTE_ADDR" => nil), 200, 1))
    end

    def test_a_client_can_not_forge_a_line
      line = common(env("PATH_INFO" => "/\"\n\e[2J\\é"), 200, 1)

      assert_equal 1, line.count("\n")
      assert_includes line, "/\\x22\\x0a\\x1b[2J\\x5c\\xc3\\xa9"
    end

    def test_json
      line = json(env("HTTP_HOST" => "example.org", "HTTP_USER_AGENT" => "wrk", "HTTP_REFERER" => "http://a/",
                      "HTTP_X_REQUEST_ID" => "abc"), 200, 1234)

      assert line.end_with?("}\n")
      assert_equal({ "time" => "2026-03-04T05:06:07.250000+02:00", "remote" => "192.0.2.7", "method" => "GET",
                     "target" => "/path?a=1", "protocol" => "HTTP/1.1", "status" => 200, "bytes" => 1234,
                     "duration" => 0.123457, "queue_time" => 0.001235, "times" => { "cpu" => 0.1, "sleep" => 0.022222 }, "host" => "example.org",
                     "user_agent" => "wrk", "referer" => "http://a/", "request_id" => "abc",
                     "pid" => Process.pid }, JSON.parse(line))
    end

    def test_json_leaves_out_what_there_is_not
      assert_empty JSON.parse(json(env, 200, 1)).keys & %w[host user_agent referer request_id]
    end

    def test_json_bears_any_bytes
      line = json(env("HTTP_USER_AGENT" => "caf\xE9 \xFF".b, "PATH_INFO" => "/\xC3\xA9".b), 200, 1)

      assert_equal ["caf\\xe9 \\xff", "/é?a=1"], JSON.parse(line).values_at("user_agent", "target")
      assert_equal 1, line.count("\n")
    end

    def test_what_the_app_has_set_may_be_of_another_encoding_than_what_came
      strange = env("SCRIPT_NAME" => "/ö", "PATH_INFO" => "/\xC3\xA9".b, "QUERY_STRING" => "\xFF".b)

      assert_equal "/ö/é?\\xff", JSON.parse(json(strange, 200, 1)).fetch("target")
      assert_includes common(strange, 200, 1), "GET /\\xc3\\xb6/\\xc3\\xa9?\\xff HTTP/1.1"
    end

    REJECTED = ["192.0.2.7", 400, "a line does not end with CR LF", 0.25].freeze

    def test_what_was_refused
      line = written("common") { |log| log.rejected("GET / HTTP/1.1", *REJECTED) }
      assert_match(%r{\A192\.0\.2\.7 - - \[\S+ \S+\] "GET / HTTP/1\.1" 400 31\n\z}, line)
      fields = JSON.parse(written("json") { |log| log.rejected("GET / HTTP/1.1", *REJECTED) })
      assert_equal ["GET", "/", "HTTP/1.1", 400, 31, 0.25, "a line does not end with CR LF"],
                   fields.values_at("method", "target", "protocol", "status", "bytes", "duration", "refused")
    end

    def test_what_was_refused_and_is_no_request_line
      line = written("common") { |log| log.rejected("\x16\x03\"\n".b, *REJECTED) }
      assert_includes line, %("\\x16\\x03\\x22\\x0a" 400)
      fields = JSON.parse(written("json") { |log| log.rejected("GE\xff".b, *REJECTED) })
      assert_equal ["GE\\xff", nil], fields.values_at("line", "method")
    end

    def test_without_a_time_it_is_as_long_ago_as_the_request_took
      time = Time.iso8601(JSON.parse(json(env, 200, 1, nil)).fetch("time"))

      assert_in_delta Time.now - REQUEST.duration, time, 1
    end

    def test_a_reader_that_has_gone_fails_no_request
      reader, writer = IO.pipe
      reader.close
      log = AccessLog.for(Configuration.new(access_log: "common"))
      log.instance_variable_set(:@io, writer)

      assert_nil log.write(REQUEST, env, 200, 1, TIME)
    ensure
      writer.close
    end

    def test_a_file_that_cannot_be_opened_is_named
      error = assert_raises(ConfigurationError) do
        AccessLog.for(Configuration.new(access_log: "json", log: "/no/such/folder/file.log"))
      end

      assert_match(%r{the log /no/such/folder/file\.log cannot be opened: No such file}, error.message)
    end

    def test_a_server_writes_a_line_for_each_request_it_answers
      app = "run ->(env) { sleep 0.1; [env[\"PATH_INFO\"] == \"/no\" ? 404 : 200, {}, [\"hello\"]] }"
      with_server(app, "-w", "2", "--access-log", "json", "--log", "server.log") do |server|
        targets = ["/no", *(1..19).map { |index| "/yes?#{index}" }]
        targets.map { |target| Thread.new { server.get(target, "user-agent" => "test") } }.each(&:join)
        entries = eventually_logged(server, 20)

        assert_equal targets.sort, entries.map { |entry| entry["target"] }.sort
        assert_equal({ 404 => 1, 200 => 19 }, entries.map { |entry| entry["status"] }.tally)
        entries.each do |entry|
          assert_equal ["GET", "HTTP/1.1", 5, "127.0.0.1", "test"],
                       entry.values_at("method", "protocol", "bytes", "remote", "user_agent")
          assert_includes 0.1..20, entry["duration"]
          assert_includes 0.0..20, entry["queue_time"]
          assert_operator microseconds(entry["duration"]), :>=, microseconds(entry["queue_time"]) + 100_000
        end
      end
    end

    def test_the_duration_includes_the_time_in_the_queue
      app = <<~RUBY
        run(lambda do |env|
          File.write("began", "")
          sleep 0.01 until File.exist?("go")
          sleep 0.1
          [200, {}, []]
        end)
      RUBY
      with_server(app, "--in-flight", "1", "--access-log", "json", "--log", "server.log") do |server|
        requests = [Thread.new { server.get }]
        eventually("the first to run") { File.exist?(server.path("began")) }
        2.times { requests << Thread.new { server.get } }
        eventually("two to wait") { queued(server) == 2 }
        sleep 0.1
        server.write("go", "")
        requests.each(&:join)
        entries = eventually_logged(server, 3).sort_by { |entry| entry["queue_time"] }

        entries.last(2).each { |entry| assert_operator entry["queue_time"], :>=, 0.1 }
        entries.each { |entry| assert_operator microseconds(entry["duration"]), :>=, microseconds(entry["queue_time"]) + 100_000 }
      end
    end

    def test_without_a_log_the_lines_go_to_stdout
      with_server("run ->(env) { [200, {}, []] }", "--access-log", "common") do |server|
        server.get("/path")

        eventually("the line") { server.log.match?(%r{^127\.0\.0\.1 - - \[.+\] "GET /path HTTP/1\.1" 200 -$}) }
      end
    end

    private

    def queued(server)
      ServerSelection.new(ControlSocket.servers, pid: server.pid).server[:status][:workers].sum { |worker| worker[:queued] }
    end

    # A line follows its answer.
    def eventually_logged(server, count)
      lines = eventually("#{count} lines") do
        read = File.readlines(server.path("server.log")).grep(/\A{.*\n/)
        read if read.size == count
      end
      lines.map { |line| JSON.parse(line) }
    end

    def env(changes = {})
      { "REMOTE_ADDR" => "192.0.2.7", "REQUEST_METHOD" => "GET", "SCRIPT_NAME" => "", "PATH_INFO" => "/path",
        "QUERY_STRING" => "a=1", "SERVER_PROTOCOL" => "HTTP/1.1" }.merge(changes)
    end

    # Both are whole numbers of them, which Float cannot add exactly.
    def microseconds(seconds) = (seconds * 1_000_000).round

    def common(*arguments) = line("common", *arguments)
    def json(*arguments) = line("json", *arguments)

    def line(format, env, status, bytes, time = TIME)
      written(format) { |log| log.write(REQUEST, env, status, bytes, time) }
    end

    def written(format)
      Dir.mktmpdir do |folder|
        yield AccessLog.for(Configuration.new(access_log: format, log: "#{folder}/access.log"))
        File.read("#{folder}/access.log")
      end
    end
  end
end
