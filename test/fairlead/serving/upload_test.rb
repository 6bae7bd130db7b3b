# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # Bodies of any size take the same memory: a multipart upload with Rack's own parser (`rake upload`: one of 5 GB), and what
  # is longer than 32 bits can say, in both directions.
  class UploadTest < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      PIECE = ("x" * (1 << 20)).freeze
      LONG = (4 << 30) + 1
      PIECES = Enumerator.new { |pieces| (LONG >> 20).times { pieces << PIECE }; pieces << "x" }

      map("/long") { run ->(_) { [200, { "content-length" => LONG.to_s }, PIECES] } }
      map("/count") do
        run(lambda do |env|
          count, piece = 0, +""
          count += piece.bytesize while env["rack.input"].read(1 << 20, piece)
          [200, { "content-type" => "text/plain" }, [count.to_s]]
        end)
      end
      run(lambda do |env|
        file = Rack::Request.new(env).POST["file"]
        size = file[:tempfile].size
        file[:tempfile].close!
        [200, { "content-type" => "text/plain" }, ["#{file[:filename]} #{size}"]]
      end)
    RUBY

    MEGABYTES = Integer(ENV.fetch("UPLOAD_MEGABYTES", "500"), 10)
    LONG = (4 << 30) + 1
    # KiB: more than the garbage that Ruby's collector waits for (RUBY_GC_OLDMALLOC_LIMIT_MAX, 128 MB), half of the smallest body.
    MOST_GROWTH = 150 << 10
    HEAD = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"large\"\r\nContent-Type: a/b\r\n\r\n"
    TAIL = "\r\n--x--\r\n"
    MEGABYTE = Random.new(1).bytes(1 << 20).freeze

    def server = shared_server(APP)

    def test_its_memory_stays_flat
      assert_flat { assert_equal "large #{MEGABYTES << 20}", upload(MEGABYTES) }
    end

    def test_chunks_are_no_different
      assert_flat { assert_equal "large #{300 << 20}", upload(300, chunked: true) }
    end

    def test_a_request_may_be_longer_than_32_bits_can_say
      client = client(timeout: 120)
      assert_flat do
        client.request("PUT", "/count", "Content-Length: #{LONG}")
        (LONG >> 20).times { client << MEGABYTE }
        assert_equal LONG.to_s, client.write("x").response.body
      end
      assert_equal "0", client.get("/count").body
    end

    def test_so_may_a_response
      client, piece = client(timeout: 120), +""
      assert_flat do
        client.request("GET", "/long")
        assert_includes Array.new(4) { client.line }, "content-length: #{LONG}"
        left = LONG - client.some.bytesize
        left -= client.socket.readpartial([left, 1 << 20].min, piece).bytesize while left.positive?
      end
      assert_equal "0", client.get("/count").body
    end

    private

    def assert_flat
      upload(10) # what the parser needs at all is there now
      before = memory("VmRSS")
      File.write("/proc/#{server.worker_pids.first}/clear_refs", "5") # VmHWM begins anew
      yield
      assert_operator memory("VmHWM") - before, :<, MOST_GROWTH
    end

    def upload(megabytes, chunked: false)
      client = client(timeout: 120)
      length = HEAD.bytesize + (megabytes << 20) + TAIL.bytesize
      framing = chunked ? "Transfer-Encoding: chunked" : "Content-Length: #{length}"
      client << "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=x\r\n#{framing}\r\n\r\n"
      [HEAD, *Array.new(megabytes, MEGABYTE), TAIL].each do |part|
        client << (chunked ? "#{part.bytesize.to_s(16)}\r\n#{part}\r\n" : part)
      end
      client << "0\r\n\r\n" if chunked
      client.response.body
    end

    # @return [Integer] KiB of the worker.
    def memory(field) = File.read("/proc/#{server.worker_pids.first}/status")[/^#{field}:\s+(\d+)/, 1].to_i
  end
end
