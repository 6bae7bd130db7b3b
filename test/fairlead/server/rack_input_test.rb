# frozen_string_literal: true

require "digest"
require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # `rack.input`: what came whole is there at once, the rest is read as it comes.
  class RackInputTest < Test
    include SpeaksHTTP

    BUFFER = 10_000
    APP = <<~'RUBY'
      require "digest"
      require "timeout"
      READ = {
        "/all" => ->(input) { input.read },
        "/pieces" => ->(input) { all = "".b; while (piece = input.read(777)) do all << piece; end; all },
        "/buffer" => ->(input) { all = "".b; buffer = +"old"; all << buffer while input.read(1000, buffer); all },
        "/partial" => ->(input) { input = input.instance_variable_get(:@input); all = "".b; begin; loop { all << input.readpartial(70_000) }; rescue EOFError; all; end },
        "/ahead" => ->(input) { input = input.instance_variable_get(:@input); all = "".b; all << input.read(9000) until input.eof?; all },
        "/gets" => ->(input) { all = []; while (line = input.gets) do all << line; end; all.map { |l| "#{l.bytesize}:#{l}" }.join },
        "/each" => ->(input) { all = []; input.each { |line| all << line }; all.map { |l| "#{l.bytesize}:#{l}" }.join },
        "/mixed" => ->(input) { [input.read(0), input.read(3), input.gets, input.read(2), input.read, input.read, input.read(1)].map(&:inspect).join(" ") },
        "/none" => ->(input) { [input.read, input.read(1), input.read(0), input.gets, input.each {}].first(4).map(&:inspect).join(" ") },
        "/nothing" => ->(_) { "unread" },
        "/some" => ->(input) { input.read(10) },
        "/slowly" => ->(input) { sleep 0.01 until File.exist?("read-on"); Digest::MD5.hexdigest(input.read) },
        "/encoding" => ->(input) { all = input.read; "#{all.encoding} #{input.gets.inspect}" },
        # Lint hands on what the specification names; to rewind is no part of it.
        "/again" => ->(input) { input = input.instance_variable_get(:@input); [input.read, input.rewind, input.read].map(&:inspect).join(" ") },
        "/interrupted" => ->(input) {
          early = begin
            Timeout.timeout(0.1) { input.read }
          rescue Timeout::Error
            File.write("interrupted", "")
          end
          "#{early} #{input.read}"
        },
        "/known" => ->(input) { [input.gets, input.gets].map { |text| text.ascii_only? ? 1 : 0 }.join },
        "/rewindable" => ->(input) { input.instance_variable_get(:@input).respond_to?(:rewind).to_s }
      }
      run ->(env) { [200, { "content-type" => "text/plain" }, [READ.fetch(env["PATH_INFO"]).call(env["rack.input"])]] }
    RUBY

    def server = shared_server(APP, "--body-buffer", BUFFER.to_s)

    def sizes = [1, 5, BUFFER - 1, BUFFER, BUFFER + 1, 65_536, 1_000_000]

    def body(size) = "line one\nline two\n\n\xff\x00last".b.then { |text| (text * (size / text.size + 1))[0, size] }

    def test_bodies_of_all_sizes_are_read_whole
      %w[/all /pieces /buffer /partial /ahead].product(sizes) do |path, size|
        client = client()
        answer = client.request("PUT", path, body: body(size)).response
        assert_equal Digest::MD5.hexdigest(body(size)), Digest::MD5.hexdigest(answer.body), "#{path} #{size}"
        assert_equal 200, client.get("/none").status
      end
    end

    def test_chunked_bodies_of_all_sizes_are_read_whole
      sizes.product([1_000_000, 1000, 7]) do |size, chunk|
        next if size / chunk > 2000

        client = client()
        client << "PUT /all HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        coded = (0...size).step(chunk).map { |at| body(size).byteslice(at, chunk) }.map { |part| "#{part.bytesize.to_s(16)}\r\n".b << part << "\r\n" }
        client << "#{coded.join}0\r\n\r\n"
        assert_equal Digest::MD5.hexdigest(body(size)), Digest::MD5.hexdigest(client.response.body), "#{size} in #{chunk}"
        assert_equal 200, client.get("/none").status
      end
    end

    def test_lines
      %w[/gets /each].product([30, BUFFER * 5]) do |path, size|
        expected = body(size).lines.map { |line| "#{line.bytesize}:".b << line }.join
        assert_equal expected, client.request("PUT", path, body: body(size)).response.body, "#{path} #{size}"
      end
    end

    def test_ways_of_reading_mix
      [20, BUFFER * 2].each do |size|
        all = body(size)
        expected = ["".b, all[0, 3], all[3..8], all[9, 2], all[11..], "".b, nil].map(&:inspect).join(" ")
        assert_equal expected, client.request("PUT", "/mixed", body: all).response.body
      end
    end

    def test_a_request_without_a_body_has_an_empty_input
      expected = ["", nil, "", nil].map(&:inspect).join(" ")
      assert_equal expected, client.get("/none").body
      assert_equal expected, client.request("POST", "/none", body: "").response.body
      assert_equal expected, client.write("PUT /none HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").response.body
    end

    def test_bytes_are_binary
      [nil, 10, BUFFER * 2].each do |size|
        client = client()
        size ? client.request("PUT", "/encoding", body: body(size)) : client.request("GET", "/encoding")
        assert_equal "ASCII-8BIT nil", client.response.body
      end
    end

    def test_what_was_read_when_the_app_lost_patience_is_read_once_more
      client = client()
      client << "PUT /interrupted HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n#{"x" * 50_000}"
      eventually("it has waited long enough") { File.exist?(server.path("interrupted")) }
      client << "y" * 10_000
      assert_equal "0 #{"x" * 50_000}#{"y" * 10_000}", client.response.body
    end

    # Strings remember whether all of their bytes are ASCII.
    def test_it_is_known_which_bytes_are_ascii
      client = client()
      client << "PUT /known HTTP/1.1\r\nHost: a\r\nContent-Length: 1000004\r\n\r\n#{"x" * 1_000_000}"
      sleep 0.1
      client << "\xff\ny\n".b
      assert_equal "01", client.response.body
    end

    def test_what_came_whole_can_be_read_again
      ["abc", "x" * BUFFER].each do |text|
        assert_equal "#{text.inspect} 0 #{text.inspect}", client.request("PUT", "/again", body: text).response.body
      end
      assert_equal "false", client.request("PUT", "/rewindable", body: "x" * (BUFFER + 1)).response.body
    end

    def test_a_body_left_unread_does_not_disturb_the_next_request
      client = client()
      2.times { assert_equal "unread", client.request("PUT", "/nothing", body: "GET /x HTTP/1.1\r\n\r\n").response.body }
      assert_equal "GET /x HTT", client.request("PUT", "/some", body: "GET /x HTTP/1.1\r\n\r\n").response.body
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
          env["rack.input"].read
          [200, {}, []]
        end)
      RUBY
      server = with_server(app, "--body-buffer", "10")
      client = client(to: server)
      client << "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n#{"x" * 20}"
      client.close
      eventually("the request's end") { server.log.include?("finished: Fairlead::ClientGone") }
    end
  end
end
