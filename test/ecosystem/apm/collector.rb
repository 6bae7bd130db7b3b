# frozen_string_literal: true

require "json"
require "socket"
require "stringio"
require "zlib"

module Fairlead
  # Stands for the service that an agent reports to: takes what is posted, on loopback, and answers 200.
  class Collector
    Report = Struct.new(:path, :headers, :body) do
      def json = JSON.parse(body, symbolize_names: true)
    end

    # @param answer [String] the body of each response, in JSON.
    def initialize(answer: "{}")
      @server = TCPServer.new("127.0.0.1", 0)
      @answer = answer
      @reports = []
      @lock = Mutex.new
      @thread = Thread.new { loop { Thread.new(@server.accept) { |socket| serve(socket) } } }
      @thread.report_on_exception = false
    end

    def port = @server.addr[1]

    def url = "http://127.0.0.1:#{port}"

    # @return [Array<Report>] so far.
    def reports = @lock.synchronize { @reports.dup }

    def close
      @thread.kill.join
      @server.close
    end

    private

    def serve(socket)
      while (line = socket.gets)
        headers = read_headers(socket)
        body = read_body(socket, headers)
        body = Zlib::GzipReader.new(StringIO.new(body)).read if headers["content-encoding"] == "gzip"
        @lock.synchronize { @reports << Report.new(line.split[1], headers, body) }
        socket.write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: #{@answer.bytesize}\r\n\r\n#{@answer}")
      end
    rescue SystemCallError, IOError
      nil
    ensure
      socket.close
    end

    def read_headers(socket)
      headers = {}
      until (field = socket.gets.chomp).empty?
        name, value = field.split(/:\s*/, 2)
        headers[name.downcase] = value
      end
      headers
    end

    def read_body(socket, headers)
      return socket.read(headers["content-length"].to_i) unless headers["transfer-encoding"] == "chunked"

      body = +""
      until (size = socket.gets.hex).zero?
        body << socket.read(size)
        socket.gets
      end
      socket.gets
      body
    end
  end

  # For tests with a collector of their own.
  module WithCollector
    def setup
      super
      @collector = Collector.new
    end

    def teardown
      super
      @collector.close
    end
  end
end
