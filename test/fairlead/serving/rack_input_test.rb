# frozen_string_literal: true

require "digest"
require_relative "../../helper"
require_relative "../../http_client"
require_relative "body_readings"

module Fairlead
  # `rack.input` as Puma gives it: whole, of any size, to be read again, with all that IO has.
  # Covers serving/request_body.rb, serving/body_file.rb
  class RackInputTest < Test
    include SpeaksHTTP
    include BodyReadings

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
        "/encoding" => ->(input) { all = input.read; "#{all.encoding} #{input.gets.inspect}" },
        # Lint hands on what the specification names; to rewind is no part of it.
        "/again" => ->(input) { input = input.instance_variable_get(:@input); [input.read, input.rewind, input.read].map(&:inspect).join(" ") },
        "/known" => ->(input) { [input.gets, input.gets].map { |text| text.ascii_only? ? 1 : 0 }.join },
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

    # Strings remember whether all of their bytes are ASCII.
    def test_it_is_known_which_bytes_are_ascii
      client = client()
      client << "PUT /known HTTP/1.1\r\nHost: a\r\nContent-Length: 1000004\r\n\r\n#{"x" * 1_000_000}"
      sleep 0.1
      client << "\xff\ny\n".b
      assert_equal "01", client.response.body
    end

    def test_what_came_whole_can_be_read_again
      ["abc", "x" * BUFFER, "x" * (BUFFER + 1), "x" * 1_000_000].each do |text|
        assert_equal "#{text.inspect} 0 #{text.inspect}", client.request("PUT", "/again", body: text).response.body
      end
    end

    def test_a_body_left_unread_does_not_disturb_the_next_request
      client = client()
      2.times { assert_equal "unread", client.request("PUT", "/nothing", body: "GET /x HTTP/1.1\r\n\r\n").response.body }
      assert_equal "GET /x HTT", client.request("PUT", "/some", body: "GET /x HTTP/1.1\r\n\r\n").response.body
    end

    # Each way of reading gives what it gives with a file.
    def test_every_method_of_io_reads_a_large_body_as_it_reads_a_small_one
      assert_reads_as_a_file(BodyReadings::NAMES, BUFFER)
    end

    # A form is found in chunks, too: what has come whole has a length.
    def test_chunks_that_came_whole_have_a_length_and_no_coding
      app = 'run ->(env) { [200, {}, [env.values_at("CONTENT_LENGTH", "HTTP_TRANSFER_ENCODING").inspect]] }'
      server = with_server(app, "--body-buffer", BUFFER.to_s)
      client = client(to: server)
      client << "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4e20\r\n#{"x" * 20_000}\r\n0\r\n\r\n"
      assert_equal '["20000", nil]', client.response.body
    end

    def test_an_upload_that_its_client_breaks_off_never_reaches_the_app
      server = with_server('run ->(env) { warn "called"; [200, {}, [env["rack.input"].read.size.to_s]] }', "--body-buffer", "10")
      client = client(to: server)
      client << "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n#{"x" * 500}"
      pid = server.worker_pids.first
      eventually("the worker stores it") { body_files(pid) == 1 }
      client.close
      eventually("its file is gone") { body_files(pid).zero? }
      refute_includes server.log, "called"
      assert_equal "20", client(to: server).request("PUT", "/", body: "x" * 20).response.body
      assert_includes server.log, "called"
    end

    def test_the_file_of_a_body_is_gone_with_its_request
      client = client()
      10.times { client.request("PUT", "/some", body: "x" * 100_000).response }
      eventually("the files are closed") { body_files(server.worker_pids.first).zero? }
    end

    def test_a_full_disk_is_said_and_the_server_goes_on
      in_small_folder do |folder|
        server = with_server('run ->(env) { [200, {}, [env["rack.input"].read.size.to_s]] }', env: { "TMPDIR" => folder })
        answer = client(to: server).tap { |client| client.write_as_taken("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\n\r\n#{"x" * 5_000_000}") }.response
        assert_equal 507, answer.status
        eventually("it is logged") { server.log.match?(/cannot be stored in #{folder}.*No space left on device/m) }
        assert_equal "500000", client(to: server).request("PUT", "/", body: "x" * 500_000).response.body
      end
    end

    private

    # @return [Integer] bodies that a process has in files.
    def body_files(pid) = opened(pid).grep(/fairlead-body/).size

    # A folder for 1 MB.
    def in_small_folder
      Dir.mktmpdir do |folder|
        system("mount", "-t", "tmpfs", "-o", "size=1m,mode=1777", "tmpfs", folder, exception: true)
        yield folder
      ensure
        system("umount", "--lazy", folder)
      end
    end
  end
end
