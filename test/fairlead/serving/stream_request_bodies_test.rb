# frozen_string_literal: true

require "digest"
require_relative "../../helper"
require_relative "../../http_client"
require_relative "body_readings"

module Fairlead
  # With `stream_request_bodies` the app is called while a large body still arrives, and reads it as it comes.
  class StreamRequestBodiesTest < Test
    include SpeaksHTTP
    include BodyReadings

    BUFFER = 10_000
    APP = <<~'RUBY'
      require "digest"
      require "timeout"
      READ = {
        "/none" => ->(input) { [input.read, input.read(1), input.read(0), input.gets].map(&:inspect).join(" ") },
        "/nothing" => ->(_) { "unread" },
        "/line" => ->(input) { input.gets },
        "/slowly" => ->(input) { sleep 0.01 until File.exist?("read-on"); Digest::MD5.hexdigest(input.read) },
        "/interrupted" => ->(input) {
          early = begin
            Timeout.timeout(0.1) { input.read }
          rescue Timeout::Error
            File.write("interrupted", "")
          end
          "#{early} #{input.read}"
        },
        "/copied" => lambda do |input|
          File.write("begun-copied", "")
          IO.copy_stream(input, IO::NULL).to_s
        ensure
          File.write("copied", $!.class.name)
        end,
        "/wrapped" => ->(input) {
          begin
            File.write("begun-wrapped", "")
            input.read
          rescue StandardError => error
            File.write("wrapped", error.class.name)
            raise ArgumentError, "a bad upload"
          end
        },
        "/rewindable" => ->(input) { input.respond_to?(:rewind).to_s }
      }
      FILE = File.expand_path("file.txt")
      File.write(FILE, "x" * 200_000)
      run(lambda do |env|
        next [200, { "content-type" => "text/plain" }, File.open(FILE)] if env["PATH_INFO"] == "/file"

        [200, { "content-type" => "text/plain" }, [READ.fetch(env["PATH_INFO"]).call(env["rack.input"])]]
      end)
    RUBY

    def server = shared_server(APP, "--body-buffer", BUFFER.to_s, "--stream-request-bodies", lint: false)

    def test_what_reads_forward_reads_as_with_a_small_body
      assert_reads_as_a_file(BodyReadings::FORWARD, BUFFER, "--stream-request-bodies")
    end

    def test_a_file_has_a_length_before_the_body_has_come_whole
      client = client().write("PUT /file HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n#{"x" * 20_000}")
      answer = client.response

      assert_equal ["200000", nil, "x" * 200_000], [answer["content-length"], answer["transfer-encoding"], answer.body]
    end

    def test_a_line_is_there_before_the_body_has_come_whole
      client = client()
      client << "PUT /line HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\nfirst\n#{"x" * 20_000}"
      assert_equal "first\n", client.response.body
    end

    def test_it_cannot_be_rewound_and_says_so
      assert_equal "false", client.request("PUT", "/rewindable", body: "x" * (BUFFER + 1)).response.body
      assert_equal "true", client.request("PUT", "/rewindable", body: "x" * BUFFER).response.body
    end

    # IO.copy_stream takes any kind of EOFError for the end.
    def test_a_copy_of_an_upload_that_breaks_off_is_not_taken_for_whole
      assert_equal "Fairlead::ClientGone", break_off("copied")
    end

    def test_a_client_that_goes_is_no_error_though_the_app_wraps_what_it_gets
      assert_equal "Fairlead::ClientGone", break_off("wrapped")
      assert_equal 200, client.get("/none").status, "what the app has raised has been dealt with"
      refute_includes server.log, "a bad upload"
    end

    def test_what_was_read_when_the_app_lost_patience_is_read_once_more
      client = client()
      client << "PUT /interrupted HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n#{"x" * 50_000}"
      eventually("it has waited long enough") { File.exist?(server.path("interrupted")) }
      client << "y" * 10_000
      assert_equal "0 #{"x" * 50_000}#{"y" * 10_000}", client.response.body
    end

    def test_a_large_body_left_unread_ends_the_connection
      client = client()
      client.write_as_taken("PUT /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\n\r\n#{"GET /x HTTP/1.1\r\nHost: a\r\n\r\n" * 1000}")
      answer = client.response
      assert_equal %w[unread close], [answer.body, answer["connection"]]
      client.write_as_taken("GET /x HTTP/1.1\r\nHost: a\r\n\r\n" * 1000)
      assert_equal "", client.rest
    end

    # While the app does not read, the client cannot send on.
    def test_an_app_that_does_not_read_holds_the_client_back
      client, size = client(), 50_000_000
      client << "PUT /slowly HTTP/1.1\r\nHost: a\r\nContent-Length: #{size}\r\n\r\n"
      sent, block = 0, "x" * 1_000_000
      while client.socket.wait_writable(0.05)
        sent += client.socket.write_nonblock(block, exception: false).then { |count| count.is_a?(Integer) ? count : 0 }
        flunk "everything was taken, though nobody read it" if sent >= size
      end
      server.write("read-on", "")
      while sent < size
        count = client.socket.write_nonblock(block.byteslice(0, [block.size, size - sent].min), exception: false)
        count.is_a?(Integer) ? sent += count : client.socket.wait_writable(5)
      end
      assert_equal Digest::MD5.hexdigest("x" * size), client.response.body
      assert_operator File.read("/proc/#{server.worker_pids.first}/status")[/VmHWM:\s+(\d+)/, 1].to_i, :<, 500_000
    end

    def test_an_app_learns_that_the_rest_will_never_come
      app = <<~'RUBY'
        run(lambda do |env|
          env["rack.response_finished"] << ->(*, error) { warn "finished: #{error.class}" }
          warn "begun"
          env["rack.input"].read
          [200, {}, []]
        end)
      RUBY
      server = with_server(app, "--body-buffer", "10", "--stream-request-bodies")
      client = client(to: server)
      client << "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n#{"x" * 20}"
      # A client that has gone before that has its request dropped: no app is told.
      eventually("the request was taken") { server.log.include?("begun") }
      client.close
      eventually("the request's end") { server.log.include?("finished: Fairlead::ClientGone") }
    end

    private

    # @return [String] the name of what the app is told.
    def break_off(name)
      client = client()
      client << "PUT /#{name} HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n#{"x" * 20_000}"
      eventually("the app reads") { File.exist?(server.path("begun-#{name}")) }
      client.close
      eventually("it is told") { File.exist?(server.path(name)) && File.read(server.path(name)).then { |said| said unless said.empty? } }
    end
  end
end
