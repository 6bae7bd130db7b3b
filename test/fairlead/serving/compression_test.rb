# frozen_string_literal: true

require "open3"
require_relative "../../decoders"
require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # `compress true`: what clients get that accept a coding, and others.
  # Covers serving/compression/body.rb, serving/compression/encoders.rb, serving/compression/secrets.rb
  class CompressionTest < Test
    include Decoders
    include SpeaksHTTP

    APP = <<~'RUBY'
      require "zlib"
      TEXT = "0123456789 compressible " * 500
      LARGE = TEXT * 20
      GO = Queue.new
      # An event at first, and one whenever GO has something.
      class Events
        def each
          yield "data: first\n\n"
          loop { yield "data: next\n\n" if GO.pop }
        end
      end
      NOISE = Random.new(1).bytes(40_000).unpack1("H*").freeze
      # Threads write; the last one writes on after the caller has left.
      class Threads
        def each
          writers = 4.times.map { |i| Thread.new { 20.times { yield "#{i}#{NOISE}" } } }
          writers.each(&:join)
        end
      end
      class Left
        def each
          began = Queue.new
          writer = Thread.new { loop { (yield NOISE).then { began << true } } }
          writer.report_on_exception = false
          began.pop
          raise "leaves"
        end
      end
      text = ->(headers = {}, status = 200, body = [TEXT]) { [status, { "content-type" => "text/html" }.merge(headers), body] }
      APPS = {
        "/array" => -> { text.({ "content-length" => TEXT.bytesize.to_s, "etag" => '"a"', "vary" => "accept" }) },
        "/large" => -> { text.({}, 200, [LARGE, nil, "end"]) },
        "/proxied" => -> { text.({}, 200, Rack::BodyProxy.new([LARGE, "end"]) { nil }) },
        "/each" => -> { text.({ "etag" => 'W/"a"' }, 200, Enumerator.new { |out| 5.times { |i| out << "part #{i}" }; out << "" }) },
        "/empty" => -> { text.({}, 200, Enumerator.new { |_| nil }) },
        "/live" => -> { text.({}, 200, Enumerator.new { |out| out << "data: 1\n\n"; GO.pop; out << "data: 2\n\n" }) },
        "/events" => -> { text.({ "content-type" => "text/event-stream" }, 200, Events.new) },
        "/go" => -> { GO << true; text.({}, 200, ["gone"]) },
        "/missing" => -> { text.({}, 404) },
        "/mixed" => -> { text.({}, 200, ["é" * 600, "\xFF".b * 600]) },
        "/small" => -> { text.({}, 200, ["small"]) },
        "/image" => -> { text.({ "content-type" => "image/png" }) },
        "/coded" => -> { text.({ "content-encoding" => "gzip" }, 200, [Zlib.gzip(TEXT)]) },
        "/no-transform" => -> { text.({ "cache-control" => "private, no-transform" }) },
        "/range" => -> { text.({ "content-range" => "bytes 0-1/9" }, 206) },
        "/none" => -> { [204, {}, []] },
        "/callable" => -> { text.({}, 200, proc { |stream| stream.write("called"); stream.close }) },
        "/cookie" => -> { text.({ "set-cookie" => "a=b" }) },
        "/private" => -> { text.({ "cache-control" => "private" }) },
        "/rails" => -> { text.({ "cache-control" => "max-age=0, private, must-revalidate" }) },
        "/varied" => -> { text.({ "vary" => "Cookie" }) },
        "/threads" => -> { text.({}, 200, Threads.new) },
        "/nil" => -> { text.({ "etag" => nil, "content-encoding" => nil, "content-length" => nil }) },
        "/left" => -> { text.({}, 200, Left.new) },
        "/pid" => -> { text.({}, 200, [Process.pid.to_s]) },
        "/raise" => -> { text.({}, 200, Enumerator.new { |out| out << TEXT; raise "no" }) },
      }
      run ->(env) { APPS.fetch(env["PATH_INFO"]).call }
    RUBY
    TEXT = "0123456789 compressible " * 500
    LARGE = "#{TEXT * 20}end".freeze
    GZIP = "Accept-Encoding: br;q=0.5, gzip;q=0.8"
    private_constant :APP, :TEXT, :LARGE, :GZIP

    def server = shared_server(APP, "--compress", "--workers", "1", lint: false)

    def test_clients_that_accept_gzip_get_it
      client = client()
      { "/array" => TEXT, "/large" => LARGE, "/each" => "part 0part 1part 2part 3part 4", "/empty" => "", "/missing" => TEXT }.each do |path, text|
        answer = client.get(path, GZIP)
        assert_equal ["gzip", text], [answer["content-encoding"], Zlib.gunzip(answer.body)], path
        assert_match(/accept-encoding/, answer["vary"])
      end
    end

    def test_parts_may_differ_in_encoding
      DECODERS.each do |coding, decoder|
        answer = client.get("/mixed", "Accept-Encoding: #{coding}")

        assert_equal [200, ("é" * 600).b + ("\xFF".b * 600)], [answer.status, decoder.new.call(answer.body).b], coding
      end
    end

    def test_the_head_says_what_has_become_of_the_bytes
      answer = client.get("/array", GZIP)
      assert_equal ['W/"a"', "accept, accept-encoding", answer.body.bytesize.to_s],
                   [answer["etag"], answer["vary"], answer["content-length"]]
      head = client.get("/array", GZIP, head: true)
      assert_equal [200, "gzip", 'W/"a"', nil], [head.status, head["content-encoding"], head["etag"], head["content-length"]]
      assert_equal 'W/"a"', client.get("/each", GZIP)["etag"]
    end

    def test_a_body_that_can_be_an_array_has_its_length_only_where_its_bytes_stay
      plain, coded = [[], [GZIP]].map { |fields| client.get("/proxied", *fields) }

      assert_equal [nil, LARGE.bytesize.to_s, LARGE], [plain["content-encoding"], plain["content-length"], plain.body]
      assert_equal ["gzip", LARGE], [coded["content-encoding"], Zlib.gunzip(coded.body)]
      refute_equal LARGE.bytesize.to_s, coded["content-length"]
    end

    def test_a_header_that_is_nil_says_nothing
      answer = client.get("/nil", GZIP)
      assert_equal ["gzip", nil, TEXT], [answer["content-encoding"], answer["etag"], Zlib.gunzip(answer.body)]
    end

    def test_other_clients_get_the_bytes_of_the_app
      client = client()
      [[], ["Accept-Encoding: gzip;q=0"], ["Accept-Encoding: deflate"], ["Accept-Encoding: *;q=0.0"],
       ["Accept-Encoding: identity, gzip;q=0.5"]].each do |fields|
        answer = client.get("/array", *fields)
        assert_equal [nil, TEXT, '"a"', "accept, accept-encoding"],
                     [answer["content-encoding"], answer.body, answer["etag"], answer["vary"]], fields.inspect
      end
      ["Accept-Encoding: *, br;q=0, zstd;q=0", "Accept-Encoding: x-gzip", "Accept-Encoding: deflate, GZIP ; q=0.1"].each do |field|
        assert_equal TEXT, Zlib.gunzip(client.get("/array", field).body), field
      end
    end

    def test_what_is_left_alone
      client = client()
      { "/small" => "small", "/image" => TEXT, "/no-transform" => TEXT, "/range" => TEXT, "/none" => "", "/callable" => "called" }
        .each do |path, text|
          answer = client.get(path, GZIP)
          assert_equal [nil, text], [answer["content-encoding"], answer.body], path
        end
      assert_equal TEXT, Zlib.gunzip(client.get("/coded", GZIP).body)
    end

    def test_the_client_chooses_among_the_codings
      client = client()
      { "gzip, deflate, br, zstd" => "br", "gzip, zstd" => "zstd", "br;q=0.9, gzip" => "gzip", "zstd;q=1, br;q=0.5" => "zstd" }.each do |list, coding|
        { "/array" => TEXT, "/large" => LARGE, "/each" => "part 0part 1part 2part 3part 4", "/empty" => "" }.each do |path, text|
          answer = client.get(path, "Accept-Encoding: #{list}")
          assert_equal coding, answer["content-encoding"], list
          assert_equal text, DECODERS.fetch(coding).new.call(answer.body), "#{coding} of #{path}"
        end
      end
    end

    def test_without_their_gems_there_is_gzip
      missing = %w[brotli zstd-ruby].to_h { |name| ["missing/#{name}.rb", "raise LoadError"] }
      with_server(APP, "--compress", "--workers", "1", lint: false, files: missing, env: { "RUBYLIB" => "missing" }) do |server|
        client = client(to: server)
        assert_equal "gzip", client.get("/array", "Accept-Encoding: gzip, br, zstd")["content-encoding"]
        assert_nil client.get("/array", "Accept-Encoding: br, zstd")["content-encoding"]
      end
    end

    SECRETS = { "/array" => ["Cookie: a=b", "Authorization: Basic YTpi", "X-CSRF-Token: a"], "/cookie" => [nil], "/private" => [nil],
                "/varied" => [nil] }.freeze
    private_constant :SECRETS

    def test_what_may_hold_a_secret_is_left_alone
      client = client()
      SECRETS.each do |path, fields|
        fields.each do |field|
          answer = client.get(path, GZIP, *field)
          assert_equal [nil, TEXT], [answer["content-encoding"], answer.body], [path, field].inspect
          assert_match(/accept-encoding/, answer["vary"])
        end
      end
      assert_equal "gzip", client.get("/rails", GZIP)["content-encoding"]
    end

    # Up to 31 bytes more or less, however often somebody asks.
    def test_with_compress_private_it_is_compressed_and_padded
      with_server(APP, "--compress", "--compress-private", "--workers", "1", lint: false) do |server|
        client = client(to: server)
        SECRETS.each do |path, fields|
          fields.each do |field|
            sizes = Array.new(40) do
              answer = client.get(path, "Accept-Encoding: gzip, br, zstd", *field)
              assert_equal ["gzip", TEXT], [answer["content-encoding"], Zlib.gunzip(answer.body)]
              answer.body.bytesize
            end
            assert_operator sizes.uniq.size, :>, 4
          end
        end
        assert_equal "br", client.get("/array", "Accept-Encoding: gzip, br")["content-encoding"]
      end
    end

    # The first part is there while the app waits for the client.
    DECODERS.each do |coding, decoder|
      define_method(:"test_each_write_leaves_at_once_with_#{coding}") do
        decode = decoder.new
        stream = client.request("GET", "/live", "Accept-Encoding: #{coding}")
        head = +""
        head << stream.line << "\n" until head.end_with?("\n\n")
        assert_match(/^content-encoding: #{coding}$/i, head)
        text = +""
        text << decode.call(chunk(stream)) until text.include?("\n\n")
        assert_equal "data: 1\n\n", text
        client.get("/go")
        until (bytes = chunk(stream)).empty?
          text << decode.call(bytes)
        end
        assert_equal "data: 1\n\ndata: 2\n\n", text
      end
    end

    # What the core sends while the app is silent does not disturb the decoder, and the end is whole, with `retry`.
    DECODERS.each do |coding, decoder|
      define_method(:"test_an_event_stream_with_#{coding}_is_live_kept_alive_and_ended_in_order") do
        server = with_server(APP, "--compress", "--workers", "1", "--event-stream-keepalive", "0.1", lint: false)
        decode = decoder.new
        stream = client(to: server).request("GET", "/events", "Accept: text/event-stream", "Accept-Encoding: #{coding}")
        head = +""
        head << stream.line << "\n" until head.end_with?("\n\n")
        assert_match(/^content-encoding: #{coding}$/i, head)
        text = +""
        text << decode.call(chunk(stream)) until text == ":\ndata: first\n\n"
        2.times { assert_equal NOTHING.fetch(coding), chunk(stream) }
        decode.call(NOTHING.fetch(coding) * 2)
        client(to: server).get("/go")
        text << decode.call(chunk(stream)) until text.end_with?("data: next\n\n")
        server.signal("TERM")
        until (bytes = chunk(stream)).empty?
          text << decode.call(bytes)
        end
        assert_match(/\A:\ndata: first\n\ndata: next\n\nretry: \d+\n\n\z/, text)
        assert_predicate decode, :finished? if decode.respond_to?(:finished?)
      end
    end

    # Stands in for a request.
    Codings = Struct.new(:ends) do
      def last_event = "retry: 1\n\n"

      def event_coding(_nothing, ending) = ends << !ending.empty?
    end
    private_constant :Codings

    def test_the_core_does_not_end_a_stream_within_an_event
      body = Compression::Body.new(["data: a", "\n", "\n", "data: b\r\n\r", "\n", "data: c\r\r", "data: d\n"], Compression::Encoders::Gzip)
      body.event_stream = codings = Codings.new([])
      assert_equal ":\ndata: a\n\ndata: b\r\n\r\ndata: c\r\rdata: d\n", Zlib.gunzip(body.enum_for.to_a.join)
      assert_equal [true, false, false, true, false, true, true, false], codings.ends
    end

    def test_curl_decodes_it_over_each_protocol
      [[], ["--http2-prior-knowledge"]].each do |flags|
        output, status = Open3.capture2("curl", "-sS", "-m", "60", "--compressed", *flags, "http://127.0.0.1:#{server.port}/large")
        assert_predicate status, :success?
        assert_equal LARGE, output
      end
    end

    # Nothing of it has left by then.
    def test_an_app_that_raises_does_not_look_complete
      answer = client.get("/raise", GZIP)

      assert_equal [500, nil, "Internal Server Error\n"], [answer.status, answer["content-encoding"], answer.body]
    end

    DECODERS.each do |coding, decoder|
      define_method(:"test_threads_of_the_app_may_write_with_#{coding}") do
        written = decoder.new.call(client.get("/threads", "Accept-Encoding: #{coding}").body)
        noise = Random.new(1).bytes(40_000).unpack1("H*")
        assert_equal 20 * 4 * (noise.size + 1), written.bytesize
        before = client.get("/pid").body
        30.times { assert_raises(EOFError) { client.get("/left", "Accept-Encoding: #{coding}").body } }
        assert_equal before, client.get("/pid").body
      end
    end

    # It would begin anew in an encoder that the next response gets.
    def test_a_thread_that_writes_on_reaches_no_encoder_that_has_finished
      writer = refused = nil
      parts = Object.new
      parts.define_singleton_method(:each) do |&write|
        writer = -> { write.call("more") rescue refused = $! }
        write.call(TEXT)
      end
      body = Compression::Body.new(parts, Compression::Encoders::Zstd)
      thread = nil
      # Whoever closes it comes after the thread.
      body.instance_variable_get(:@lock).define_singleton_method(:try_lock) { thread.join && super() }
      written = []
      body.each do |bytes|
        written << bytes
        next unless written.size == 2

        thread = Thread.new(&writer)
        eventually("it waits for the encoder") { thread.stop? }
      end

      assert_equal TEXT, ::Zstd.decompress(written.join)
      assert_kind_of IOError, refused
    end

    # What interrupts the end of a response may have it closed twice.
    def test_a_compressor_of_zstd_is_given_back_once
      encoder = Compression::Encoders::Zstd.new
      2.times { encoder.close }
      taken = Array.new(2) { Compression::Encoders::Zstd.take }
      refute_same(*taken)
    ensure
      taken&.each { |compressor| Compression::Encoders::Zstd.give_back(compressor) }
    end

    # The garbage collector does not count their memory, and would let a gigabyte of them pile up.
    def test_responses_share_compressors_of_zstd
      GC.disable
      before = ObjectSpace.each_object(::Zstd::StreamingCompress).count
      20.times do
        body = Compression::Body.new([TEXT, "end"], Compression::Encoders::Zstd)
        body.each { |_part| break } # its client has gone
        assert_equal "#{TEXT}end", ::Zstd.decompress(body.enum_for.to_a.join)
      end
      assert_operator ObjectSpace.each_object(::Zstd::StreamingCompress).count - before, :<=, 1
    ensure
      GC.enable
    end

    def test_without_the_option_nothing_is_compressed
      with_server(APP, lint: false) do |server|
        answer = client(to: server).get("/array", GZIP)
        assert_equal [nil, "accept", TEXT], [answer["content-encoding"], answer["vary"], answer.body]
      end
    end

    private

    def chunk(stream) = stream.read(stream.line.hex).tap { stream.line }
  end
end
