# frozen_string_literal: true

require "socket"

module Bench
  # A crowd of keep-alive connections that each asked once, got their answer, and now sit there: what does a
  # server pay for them? The figure is the memory of all its processes with the crowd less that without it, both
  # after the same number of requests, so that a grown heap is not taken for the price of connections. With
  # `waiting`, the requests take long, and the memory is measured while all of them wait.
  class Crowd
    BATCH = 100
    ANSWER_TIMEOUT = 10
    SETTLE = 1
    WAIT_TIMEOUT = 40
    # Descriptors that server and client need for other things.
    SPARE = 300
    private_constant :SPARE, :BATCH, :ANSWER_TIMEOUT, :SETTLE, :WAIT_TIMEOUT

    attr_reader :connections

    # @param waiting [Numeric, nil] seconds that each request waits.
    # @param connections [Integer] as many, or as many as this process may have descriptors for.
    def initialize(connections:, path: "/", waiting: nil)
      @connections = [connections, (Process.getrlimit(:NOFILE).last - SPARE) / BATCH * BATCH].min
      @path = path
      @waiting = waiting
    end

    def name = "crowd"

    def description
      "#{@connections} connections, one request each (path #{@path})#{@waiting ? "; all wait" : ", then idle"}"
    end

    def main_figure = :extra_memory

    # @return [Numeric] seconds, about: two times all of them, or until those that wait are answered.
    def duration(_seconds) = 3 + (@waiting ? 2 * @waiting : @connections / 2_000)

    # @param _seconds ignored: what is measured is a state, not a speed.
    # @return [Hash{Symbol => Numeric}] memory in MB; closed_by_server: connections that were gone when it was measured.
    def run(server, _seconds)
      @request = "GET #{@path} HTTP/1.1\r\nHost: localhost\r\n\r\n"
      ask_in_turn(server) unless @waiting
      before = settled_memory(server)
      sockets, errors = gather(server)
      with_crowd = settled_memory(server)
      closed = sockets.count { |socket| closed?(socket) }
      errors += sockets.count { |socket| !answered?(socket, WAIT_TIMEOUT) } if @waiting

      {
        connections: @connections, requests: @connections * 2, errors:, non_2xx: 0, closed_by_server: closed,
        memory_before: before, memory_with_crowd: with_crowd, extra_memory: with_crowd - before,
        kilobytes_each: (with_crowd - before) * 1024 / @connections
      }
    ensure
      sockets&.each(&:close)
    end

    private

    # As many requests as the crowd will send, on a few connections.
    def ask_in_turn(server)
      (@connections / BATCH).times do
        sockets = Array.new(BATCH) { TCPSocket.new("127.0.0.1", server.port) }
        sockets.each { |socket| socket.write(@request) }
        sockets.each { |socket| answered?(socket) }
        sockets.each(&:close)
      end
    end

    def gather(server)
      errors = 0
      sockets = []
      (@connections / BATCH).times do
        batch = Array.new(BATCH) { TCPSocket.new("127.0.0.1", server.port) }
        batch.each { |socket| socket.write(@request) }
        errors += batch.count { |socket| !answered?(socket) } unless @waiting
        sockets.concat(batch)
      end
      [sockets, errors]
    rescue SystemCallError
      [sockets, @connections - sockets.size + errors]
    end

    # Answers of these workloads are small: head and body come in one piece or two.
    def answered?(socket, seconds = ANSWER_TIMEOUT)
      answer = +""
      until complete?(answer)
        return false unless socket.wait_readable(seconds)

        piece = socket.read_nonblock(16_384, exception: false)
        return false if piece.nil?

        answer << piece unless piece == :wait_readable
      end
      answer.start_with?("HTTP/1.1 200")
    rescue SystemCallError
      false
    end

    def complete?(answer)
      head, body = answer.split("\r\n\r\n", 2)
      return false unless body

      length = head[/^content-length: *(\d+)/i, 1]
      length ? body.bytesize >= length.to_i : body.end_with?("0\r\n\r\n")
    end

    def settled_memory(server)
      sleep SETTLE
      server.processes.memory[:pss]
    end

    # An answer that has come already is no end.
    def closed?(socket)
      ["", nil].include?(socket.recv_nonblock(1, Socket::MSG_PEEK, exception: false))
    rescue SystemCallError
      true
    end
  end
end
