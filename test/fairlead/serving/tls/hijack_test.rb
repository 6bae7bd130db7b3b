# frozen_string_literal: true

require_relative "../../../helper"
require_relative "../../../tls_client"

module Fairlead
  # An app that takes over a connection over TLS gets the client's bytes in the clear.
  class TLSHijackTest < Test
    include SpeaksHTTP
    include SpeaksHTTPS

    APP = <<~'RUBY'
      ENDED = Queue.new
      ECHO = lambda do |io|
        loop { io.write(io.readpartial(65_536)) }
      rescue EOFError
        io.write("last")
        io.close
      end
      run lambda { |env|
        next [200, {}, [ENDED.pop(timeout: 10).inspect]] if env["PATH_INFO"] == "/ended"
        next [200, {}, []] if env["PATH_INFO"] == "/"
        next [101, { "connection" => "upgrade", "upgrade" => "echo" }, ECHO] if env["PATH_INFO"] == "/called"

        io = env["rack.hijack"].call
        Thread.new do
          case env["PATH_INFO"]
          when "/echo"
            io.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: upgrade\r\n\r\n")
            begin
              loop { io.write(io.readpartial(65_536)) }
            rescue EOFError
              ENDED << :eof
            end
          when "/large" then io.write("x" * 20_000_000)
          end
          io.close
        end
        [200, {}, []]
      }
    RUBY

    def server = shared_server(APP, *FLAGS, files: FILES, lint: false)

    def client(to: server, **options) = tls_client(to:, **options)

    # @return [HTTPClient] whose connection the app echoes.
    def echoed
      client.write("GET /echo HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: upgrade\r\n\r\nahead").tap do |one|
        nil until one.line.empty?
        assert_equal "ahead", one.read(5)
      end
    end

    def test_bytes_go_both_ways
      one = echoed
      %w[a bc def].each do |text|
        one.write(text)
        assert_equal text, one.read(text.size)
      end
    end

    def test_much_goes_both_ways_at_once
      one = echoed
      bytes = Random.bytes(5_000_000)
      writing = Thread.new { bytes.scan(/.{1,40000}/mn) { |part| one.write(part) } }

      assert_equal bytes, one.read(bytes.size)
      writing.join
    end

    def test_a_client_that_goes_ends_what_the_app_reads
      echoed.close

      assert_equal ":eof", client.get("/ended").body
    end

    def test_a_client_that_ends_its_side_gets_what_the_app_sends_yet
      one = echoed
      one.write("last").close_write

      assert_equal "last", one.read(4)
      assert_predicate one, :eof?
      assert_equal ":eof", client.get("/ended").body
    end

    def test_an_app_that_closes_ends_the_connection_once_all_is_sent
      one = client.write("GET /large HTTP/1.1\r\nHost: a\r\n\r\n")

      assert_equal "x" * 20_000_000, one.read(20_000_000)
      assert_predicate one, :eof?
    end

    def test_a_stop_waits_for_what_the_server_has_called
      with_server(APP, *FLAGS, files: FILES, lint: false) do |own|
        idle = client(to: own)
        idle.get("/")
        one = client(to: own).write("GET /called HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: upgrade\r\n\r\n")
        nil until one.line.empty?
        own.signal(:TERM)

        assert_predicate idle, :eof?, "the server drains"
        assert_equal "first", one.write("first").read(5)
        one.close_write

        assert_equal "last", one.read(4)
        assert_predicate one, :eof?
        assert_predicate own.wait_for_end, :success?
      end
    end

    def test_it_ends_with_the_server
      with_server(APP, *FLAGS, files: FILES, lint: false) do |own|
        one = client(to: own).write("GET /echo HTTP/1.1\r\nHost: a\r\n\r\nahead")
        nil until one.line.empty?
        one.read(5)

        assert_operator duration { assert_predicate own.stop, :success? }, :<, 10
        assert_predicate one, :eof?
      end
    end
  end
end
