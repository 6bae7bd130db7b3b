# frozen_string_literal: true

module Fairlead
  # A browser or a proxy: it keeps its connection open, and opens a new one only when the server has said that
  # it closes this one. Anything else is a failure.
  class StrictClient
    attr_reader :failures, :answers, :pid

    # @param keep [Boolean] whether the connection is kept; else each request has one of its own.
    def initialize(server, keep: true)
      @server = server
      @keep = keep
      @failures = []
      @answers = 0
    end

    def request(path = "/")
      @socket ||= @server.connect
      @socket.write("GET #{path} HTTP/1.1\r\nHost: a\r\n\r\n")
      head = @socket.gets("\r\n\r\n") or raise EOFError, "closed instead of an answer"
      @pid = body(head).to_i
      raise "answered #{head.lines.first}" unless head.start_with?("HTTP/1.1 200")

      @answers += 1
      disconnect if !@keep || head.match?(/^connection: close/i)
      true
    rescue SystemCallError, IOError, RuntimeError => error
      @failures << "#{error.class}: #{error.message}"
      disconnect
      false
    end

    def disconnect
      @socket&.close
      @socket = nil
    end

    private

    # In chunks, where the server has begun to send before it had all of it.
    def body(head)
      return @socket.read(head[/^content-length: (\d+)/i, 1].to_i) unless head.match?(/^transfer-encoding: chunked/i)

      text = +""
      while (size = @socket.gets("\r\n").hex).positive?
        text << @socket.read(size)
        @socket.read(2)
      end
      @socket.read(2)
      text
    end
  end
end
