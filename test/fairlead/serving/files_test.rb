# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # Files, as Rack and Rails send them: whole, in ranges, or by the proxy in front; for GET and for HEAD.
  class FilesTest < Test
    include SpeaksHTTP

    APP = <<~'RUBY'
      require "rack/files"
      require "rack/head"
      require "rack/sendfile"
      require "rack/rewindable_input"
      require "action_dispatch"

      # `each` yields other bytes than the file has, so that a test can tell whether Ruby or the core has sent the body.
      class Generated
        def to_path = File.expand_path("public/a.txt")
        def each = yield("generated")
        def close = warn("generated: closed")
      end

      nothing = ->(_) { [404, { "content-type" => "text/plain" }, ["nothing"]] }
      generated = ->(_) { [200, { "content-type" => "text/plain" }, Generated.new] }
      twice = lambda do |env|
        input = env["rack.input"]
        first = input.read
        input.rewind
        again = +""
        input.each { |part| again << part }
        [200, { "content-type" => "text/plain" }, ["#{first.size} #{first == again}"]]
      end

      map("/files") { run Rack::Files.new("public") }
      map("/static") { run ActionDispatch::Static.new(nothing, File.expand_path("public")) }
      map("/sendfile") { use(Rack::Sendfile, "X-Sendfile"); run(Rack::Files.new("public")) }
      map("/accel") { use(Rack::Sendfile, "X-Accel-Redirect", [[Dir.pwd, "/internal"]]); run(Rack::Files.new("public")) }
      map("/proxied") { use(Rack::Sendfile, "X-Accel-Redirect"); run(Rack::Files.new("public")) }
      map("/generated") { use(Rack::Head); run(generated) }
      map("/generated-sendfile") { use(Rack::Head); use(Rack::Sendfile, "X-Sendfile"); run(generated) }
      map("/twice") { use(Rack::RewindableInput::Middleware); run(twice) }
    RUBY
    TEXT = Array.new(300_000) { |number| number.to_s(36) }.join(" ")
    SIZE = TEXT.bytesize

    def server = shared_server(APP, "--body-buffer", "1000", files: { "public/a.txt" => TEXT, "public/empty.txt" => "" })

    WAYS = %w[/files /static].freeze

    def test_a_file_is_sent_whole
      WAYS.each do |way|
        both("#{way}/a.txt") do |answer, body|
          assert_equal [200, SIZE.to_s, "text/plain"], [answer.status, answer["content-length"], answer["content-type"]]
          assert_equal TEXT, body if body
        end
        both("#{way}/empty.txt") { |answer, _| assert_equal [200, "0"], [answer.status, answer["content-length"]] }
      end
    end

    def test_a_file_that_has_not_changed_is_not_sent_again
      since = client.get("/files/a.txt", head: true)["last-modified"]
      both("/files/a.txt", "If-Modified-Since: #{since}") { |answer, _| assert_equal [304, ""], [answer.status, answer.body] }
    end

    def test_a_range_is_sent_alone
      { "bytes=10-19" => 10..19, "bytes=1000000-" => 1_000_000..(SIZE - 1), "bytes=-5" => (SIZE - 5)..(SIZE - 1),
        "bytes=#{SIZE - 3}-#{SIZE + 100}" => (SIZE - 3)..(SIZE - 1) }.each do |asked, range|
        WAYS.each do |way|
          both("#{way}/a.txt", "Range: #{asked}") do |answer, body|
            assert_equal [206, "bytes #{range.begin}-#{range.end}/#{SIZE}", range.size.to_s],
                         [answer.status, answer["content-range"], answer["content-length"]], "#{way} #{asked}"
            assert_equal TEXT[range], body if body
          end
        end
      end
    end

    # Rails sends the same bytes, but calls them text/plain.
    def test_several_ranges_are_sent_in_parts
      whole = nil
      both("/files/a.txt", "Range: bytes=0-4, 1000000-1000009") do |answer, body|
        assert_equal 206, answer.status
        boundary = answer["content-type"][%r{\Amultipart/byteranges; boundary=(.+)}, 1]
        next unless body

        assert_equal answer["content-length"], body.bytesize.to_s
        parts = body.split("--#{boundary}")[1..-2].map { |part| part.sub(/\A\r\n/, "").chomp.split("\r\n\r\n", 2) }
        assert_equal [TEXT[0, 5], TEXT[1_000_000, 10]], parts.map(&:last)
        assert_match(%r{^content-range: bytes 1000000-1000009/#{SIZE}}i, parts.last.first)
        whole = body
      end
      assert_equal whole, client.get("/static/a.txt", "Range: bytes=0-4, 1000000-1000009").body
    end

    def test_a_range_that_is_not_there_is_refused
      WAYS.each do |way|
        both("#{way}/a.txt", "Range: bytes=#{SIZE}-") do |answer, _|
          assert_equal [416, "bytes */#{SIZE}"], [answer.status, answer["content-range"]], way
        end
      end
    end

    def test_the_proxy_in_front_is_told_to_send_the_file
      root = server.directory
      mapping = "X-Accel-Mapping: #{root}/=/internal/"
      { "/sendfile" => ["x-sendfile", "#{root}/public/a.txt"], "/accel" => ["x-accel-redirect", "/internal/public/a.txt"],
        "/proxied" => ["x-accel-redirect", "/internal/public/a.txt"] }.each do |way, (name, value)|
        client = client()
        told = client.get("#{way}/a.txt", mapping)
        assert_equal [200, value, "0", ""], [told.status, told[name], told["content-length"], told.body], way
        # Rack::Files has nothing to send for it.
        assert_equal SIZE.to_s, client.get("#{way}/a.txt", mapping, head: true)["content-length"]
        assert_equal 404, client.get("/nowhere").status
      end
    end

    # What is no file for the proxy, or asked for by the client alone, is sent.
    def test_a_client_cannot_make_the_server_name_its_files
      both("/files/a.txt", "X-Sendfile-Type: X-Sendfile") do |answer, body|
        assert_nil answer["x-sendfile"]
        assert_equal TEXT, body if body
      end
    end

    def test_a_body_that_names_a_file_is_sent_from_it
      both("/generated") { |answer, body| assert_equal [200, body && TEXT], [answer.status, body] }
      both("/generated-sendfile") do |answer, _|
        assert_equal ["#{server.directory}/public/a.txt", "0", ""], [answer["x-sendfile"], answer["content-length"], answer.body]
      end
      eventually("each body is closed") { server.log.scan("generated: closed").size == 4 }
    end

    # Larger than what is buffered, so that it comes as a stream, read once; with a length, and in chunks.
    def test_a_middleware_makes_the_request_rewindable
      [0, 1, 500, 300_000].each do |size|
        client = client()
        assert_equal "#{size} true", client.request("POST", "/twice", body: "x" * size).response.body
        client.request("POST", "/twice", "Transfer-Encoding: chunked")
        client << "#{size.to_s(16)}\r\n#{"x" * size}\r\n" if size.positive?
        assert_equal "#{size} true", client.write("0\r\n\r\n").response.body
      end
    end

    private

    # GET, then HEAD on the same connection: the same but for the body, which comes for GET alone.
    #
    # @yieldparam body [String, nil] nil for HEAD.
    def both(path, *fields)
      client = client()
      whole = client.get(path, *fields)
      yield whole, whole.body
      head = client.get(path, *fields, head: true)
      yield head, nil
      assert_equal whole["content-length"], head["content-length"] if head["content-length"]
      assert_equal 404, client.get("/nowhere").status
    end
  end
end
