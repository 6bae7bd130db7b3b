# frozen_string_literal: true

require "digest"
require "open3"
require "tempfile"
require_relative "../../helper"
require_relative "../../http_client"
require_relative "../../tls_client"

module Fairlead
  # Bodies that answer `to_path`: the core sends the file, and the app's part is over.
  class ResponseFileTest < Test
    include SpeaksHTTP
    include SpeaksHTTPS

    APP = <<~'RUBY'
      require "rack/files"
      require "tempfile"

      # `each` yields bytes by which a test can tell that Ruby has sent the body.
      Body = Struct.new(:to_path) do
        def each = yield("by each")
        def close = warn("closed")
      end

      FILE = File.expand_path("public/big.bin")
      TEXT = File.expand_path("public/small.txt")
      sends = ->(path, headers = {}, status = 200) { [status, { "content-type" => "text/plain" }.merge(headers), Body.new(path)] }
      APPS = {
        "/big" => -> { sends.(FILE) },
        "/small" => -> { sends.(TEXT) },
        "/empty" => -> { sends.(File.expand_path("public/empty.txt")) },
        "/same-length" => -> { sends.(TEXT, "content-length" => "5") },
        "/other-length" => -> { sends.(TEXT, "content-length" => "7") },
        "/partial" => -> { sends.(TEXT, { "content-range" => "bytes 0-4/9" }, 206) },
        "/unchanged" => -> { sends.(TEXT, {}, 304) },
        "/nil" => -> { sends.(nil) },
        "/missing" => -> { sends.("/nowhere/at/all") },
        "/nul" => -> { sends.("a\0b") },
        "/folder" => -> { sends.(File.dirname(TEXT)) },
        "/fifo" => -> { File.mkfifo("fifo") unless File.exist?("fifo"); sends.(File.expand_path("fifo")) },
        "/file" => -> { [200, {}, File.open(TEXT)] },
        "/rest-of-file" => -> { [200, {}, File.open(TEXT).tap { |file| file.read(3) }] },
        "/unlinked" => -> { file = Tempfile.create; file.write("gone"); file.rewind; File.unlink(file.path); [200, {}, file] },
        "/raises" => -> { [200, {}, Class.new { def to_path = raise("no path"); def each = nil }.new] },
        "/wait" => -> { sleep 0.01; sends.(FILE) },
      }
      files = Rack::Files.new("public")
      run ->(env) { (app = APPS[env["PATH_INFO"]]) ? app.call : files.call(env) }
    RUBY
    BIG = Random.new(7).bytes(5_000_000)
    SERVED = { "public/big.bin" => BIG, "public/small.txt" => "small", "public/empty.txt" => "" }.freeze
    private_constant :APP, :BIG, :SERVED

    def server
      shared_server(APP, "--bind", "http://127.0.0.1:0", *FLAGS, "--workers", "1", lint: false, files: FILES.merge(SERVED))
    end

    def curl(path, *flags, to: secure)
      output, status = Open3.capture2("curl", "-sSk", "-m", "60", *flags, "#{to}#{path}", binmode: true)
      assert status.success?, "curl #{path}: #{status}"
      output
    end

    def plain = server.addresses.find { |address| address.start_with?("http:") }
    def secure = server.addresses.find { |address| address.start_with?("https:") }

    def plain_client
      HTTPClient.new(TCPSocket.new("127.0.0.1", URI(plain).port)).tap { |client| (@tls_clients ||= []) << client }
    end

    def test_the_same_bytes_over_each_protocol
      [[plain, []], [plain, ["--http2-prior-knowledge"]], [secure, ["--http1.1"]], [secure, ["--http2"]]].each do |to, flags|
        %w[/big /wait /big.bin].each do |path|
          assert_equal Digest::SHA256.hexdigest(BIG), Digest::SHA256.hexdigest(curl(path, *flags, to:)), [to, path, flags].inspect
        end
        assert_equal ["small", "", BIG[-5..]],
                     [curl("/small", *flags, to:), curl("/empty", *flags, to:), curl("/big.bin", "-r", "-5", *flags, to:)]
      end
    end

    def test_the_head_stays_the_apps
      client = plain_client
      { "/small" => [200, "5", "small"], "/empty" => [200, "0", ""], "/same-length" => [200, "5", "small"],
        "/partial" => [206, "5", "small"], "/unchanged" => [304, nil, ""], "/big.bin" => [200, BIG.bytesize.to_s, BIG],
        "/file" => [200, "5", "small"], "/rest-of-file" => [200, "2", "ll"] }.each do |path, expected|
        answer = client.get(path)
        assert_equal expected, [answer.status, answer["content-length"], answer.body], path
        head = client.get(path, head: true)
        assert_equal [answer.status, ""], [head.status, head.body], path
        assert_equal [answer["content-length"]], [head["content-length"]], path unless %w[/empty /partial /rest-of-file].include?(path)
      end
    end

    # A Range is the app's business: this one does not know any.
    def test_the_app_decides_on_ranges
      answer = plain_client.get("/small", "Range: bytes=0-1")

      assert_equal [200, "small", nil], [answer.status, answer.body, answer["accept-ranges"]]
    end

    def test_what_is_no_file_of_that_length_comes_by_each
      client = plain_client
      %w[/other-length /nil /missing /nul /folder /fifo].each { |path| assert_equal "by each"[0, 7], client.get(path).body, path }
      assert_equal "gone", client.get("/unlinked").body
      assert_equal 500, client.get("/raises").status
    end

    def test_pipelined_requests_get_their_files_in_order
      client = plain_client
      paths = %w[/small /big /empty /file /big /small]
      client.write(paths.map { |path| "GET #{path} HTTP/1.1\r\nHost: example.com\r\n\r\n" }.join)

      assert_equal ["small", BIG, "", "small", BIG, "small"], paths.map { client.response.body }
    end

    # The app's body is closed, and its fiber free, while the client still reads.
    def test_a_client_that_reads_nothing_holds_neither_fiber_nor_descriptor
      slow = Array.new(3) { plain_client.tap { |client| client.write("GET /big HTTP/1.1\r\nHost: example.com\r\n\r\n") } }
      slow.each(&:some)

      assert_equal "small", plain_client.get("/small").body
      worker = server.worker_pids.first
      eventually("the files are open") { files_of(worker) == 3 }
      slow.each(&:reset)
      eventually("the files are closed") { files_of(worker).zero? }
    end

    private

    def files_of(pid) = opened(pid).count { |path| path.end_with?("/big.bin") }
  end
end
