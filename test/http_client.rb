# frozen_string_literal: true

require "io/wait"
require "socket"

module Fairlead
  # A client that sends bytes as they are given, however wrong, and reads one response after the other. Nothing is read
  # ahead of what a response says of its length, so that a byte too many is noticed.
  class HTTPClient
    Response = Struct.new(:version, :status, :headers, :body, :ended) do
      # @return [Array<String>, String, nil] all values of a header; one value alone is a String.
      def [](name)
        values = headers.filter_map { |key, value| value if key.casecmp?(name) }
        values.size > 1 ? values : values.first
      end
    end

    attr_reader :socket

    # @param timeout [Numeric] seconds without a byte, after which reading raises.
    def initialize(socket, timeout: 45)
      @socket = socket
      @socket.setsockopt(:TCP, :NODELAY, 1) if socket.is_a?(TCPSocket)
      @timeout = timeout
      @buffer = String.new(encoding: Encoding::BINARY)
    end

    def write(bytes)
      @socket.write(bytes)
      self
    end
    alias << write

    # Sends bytes while the server takes any; it may have refused and closed before all have left.
    def write_as_taken(bytes)
      @socket.write(bytes)
      self
    rescue Errno::EPIPE, Errno::ECONNRESET
      self
    end

    # @param head [Boolean] whether the request was HEAD, so that there is no body whatever the headers say.
    # @param processing [Boolean] whether 102 is one too: who has ended its side, and has to wait, is asked by it whether it
    #   still reads, and a busy machine makes anybody wait.
    # @return [Response, nil] nil at the end of the connection.
    def response(head: false, processing: false)
      return if eof?

      version, status, = line.split(" ", 3)
      headers = []
      until (field = line).empty?
        headers << field.split(": ", 2)
      end
      answer = Response.new(version, status.to_i, headers, String.new(encoding: Encoding::BINARY), false)
      return response(head:) if answer.status == 102 && !processing

      read_body(answer) unless head || answer.status < 200 || [204, 304].include?(answer.status)
      answer
    end

    def get(path, *fields, head: false)
      request(head ? "HEAD" : "GET", path, *fields).response(head:)
    end

    # @param fields [Array<String>] header lines.
    def request(method, path, *fields, body: nil, host: "example.com", version: "1.1")
      fields = ["Host: #{host}", *fields] if host
      fields = [*fields, "Content-Length: #{body.bytesize}"] if body
      write("#{method} #{path} HTTP/#{version}\r\n#{fields.map { |field| "#{field}\r\n" }.join}\r\n#{body}")
    end

    # Everything until the server closes.
    def rest
      loop { fill }
    rescue EOFError
      @buffer.slice!(0..)
    end

    # Everything until the last chunk.
    def rest_of_chunks
      fill until @buffer.end_with?("0\r\n\r\n")
      @buffer.slice!(0..)
    end

    # Bytes as they come; waits until there are some.
    def some
      fill if @buffer.empty?
      @buffer.slice!(0..)
    end

    def read(size)
      fill while @buffer.bytesize < size
      @buffer.slice!(0, size)
    end

    def line
      fill until (ends = @buffer.index("\r\n"))
      @buffer.slice!(0, ends + 2).chomp("\r\n")
    end

    # A line that ends with a line feed alone: of what is not HTTP.
    def line_feed
      fill until (ends = @buffer.index("\n"))
      @buffer.slice!(0, ends + 1).chomp
    end

    # @return [Boolean] whether the server has ended the connection; waits until it is known.
    def eof?
      fill if @buffer.empty?
      false
    rescue EOFError
      true
    end

    # @return [Boolean] whether nothing comes within so many seconds.
    def silent?(seconds = 0.05) = @buffer.empty? && !@socket.wait_readable(seconds)

    def close_write = @socket.close_write

    # Likewise, if the server has not closed already.
    def close_write_as_taken
      close_write
    rescue Errno::ENOTCONN
      nil
    end

    def close = @socket.close

    # Closes so that the server sees a reset.
    def reset
      @socket.setsockopt(:SOCKET, :LINGER, [1, 0].pack("ii"))
      @socket.close
    end

    private

    def read_body(answer)
      if answer["transfer-encoding"] == "chunked"
        until (size = line.hex).zero?
          answer.body << read(size)
          line
        end
        line
      elsif answer["content-length"]
        answer.body << read(Integer(answer["content-length"], 10))
      else
        answer.body << rest
        answer.ended = true
      end
    end

    def fill
      raise "nothing came from the server within #{@timeout} s" unless @socket.wait_readable(@timeout)

      @buffer << @socket.readpartial(65_536)
    rescue Errno::ECONNRESET
      raise EOFError
    end
  end

  # For tests that speak HTTP themselves.
  module SpeaksHTTP
    # A new connection to the server under test; it is closed with the test.
    def client(to: server, **options)
      client = HTTPClient.new(to.connect, **options)
      (@clients ||= []) << client
      client
    end

    def teardown
      (@clients || []).each { |client| client.close unless client.socket.closed? }
      super
    end
  end
end
