# frozen_string_literal: true

module Fairlead
  # A client that asks again and again on one connection, opens another one when the server says that it ends the
  # present one, and notes what was never answered. The app answers with the id of its process.
  class KeepAliveClient
    # @!attribute port [Integer] the client's end of the connection.
    # @!attribute opened_at [Float] when the connection was opened.
    Failure = Struct.new(:port, :opened_at, :error)

    # @return [Integer] how many requests were answered.
    attr_reader :answered
    # @return [Integer, nil] the process that answered last on the present connection.
    attr_reader :worker

    def initialize(server, path)
      @server = server
      @path = path
      @answered = 0
      @failures = []
    end

    # @return [Boolean] whether it was answered.
    def ask
      open unless @socket
      @socket.write("GET #{@path} HTTP/1.1\r\nHost: a\r\n\r\n")
      head = read_head
      raise "answered #{head}" unless head.start_with?("HTTP/1.1 200 ")

      @worker = read_body(head).to_i
      @answered += 1
      close if head.include?("connection: close")
      true
    rescue StandardError => error
      @failures << Failure.new(@socket&.local_address&.ip_port, @opened_at, error)
      close
      false
    end

    # @return [Array<Failure>] those since the last call.
    def take_failures = @failures.slice!(0..)

    def close
      @socket&.close
      @socket = nil
    end

    private

    def open
      @worker = nil
      @opened_at = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      @socket = @server.connect
    end

    # In chunks, where the server has begun to send before it had all of it.
    def read_body(head)
      return @socket.read(head[/content-length: (\d+)/, 1].to_i) unless head.include?("transfer-encoding: chunked")

      text = +""
      while (size = @socket.gets.hex).positive?
        text << @socket.read(size)
        @socket.gets
      end
      @socket.gets
      text
    end

    def read_head
      head = +""
      head << (@socket.gets or raise EOFError, "the connection has ended") until head.end_with?("\r\n\r\n")
      head
    end
  end
end
