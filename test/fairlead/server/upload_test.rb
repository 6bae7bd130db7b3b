# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # A multipart upload of any size, with Rack's own parser, takes the same memory. UPLOAD_MEGABYTES=5000 for a large one.
  class UploadTest < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      run(lambda do |env|
        file = Rack::Request.new(env).POST["file"]
        size = file[:tempfile].size
        file[:tempfile].close!
        [200, { "content-type" => "text/plain" }, ["#{file[:filename]} #{size}"]]
      end)
    RUBY

    MEGABYTES = Integer(ENV.fetch("UPLOAD_MEGABYTES", "500"), 10)
    MOST_GROWTH = 80 << 10 # KiB
    HEAD = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"large\"\r\nContent-Type: a/b\r\n\r\n"
    TAIL = "\r\n--x--\r\n"
    MEGABYTE = Random.new(1).bytes(1 << 20).freeze

    def server = shared_server(APP)

    def test_its_memory_stays_flat
      upload(10) # what the parser needs at all is there now
      before = memory("VmRSS")
      assert_equal "large #{MEGABYTES << 20}", upload(MEGABYTES)
      assert_operator memory("VmHWM") - before, :<, MOST_GROWTH
    end

    def test_chunks_are_no_different
      upload(10)
      before = memory("VmRSS")
      assert_equal "large #{100 << 20}", upload(100, chunked: true)
      assert_operator memory("VmHWM") - before, :<, MOST_GROWTH
    end

    private

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
