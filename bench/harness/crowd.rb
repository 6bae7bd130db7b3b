# frozen_string_literal: true

require "openssl"
require "socket"
require_relative "wrk"

module Bench
  # A crowd of keep-alive connections that each asked once, got their answer, and now sit there: what does a
  # server pay for them? The figure is the memory of all its processes with the crowd less that without it, both
  # after the same number of requests, so that a grown heap is not taken for the price of connections. With
  # `waiting`, the requests take long, and the memory is measured while all of them wait. With `beside`, so many connections are busy
  # beside the idle ones afterwards.
  class Crowd
    BATCH = 100
    # Each opens its share of a batch: over TLS, so that client and server compute at the same time.
    OPENERS = 4
    ANSWER_TIMEOUT = 10
    SETTLE = 1
    WAIT_TIMEOUT = 40
    # Descriptors that server and client need for other things.
    SPARE = 300
    private_constant :SPARE, :BATCH, :OPENERS, :ANSWER_TIMEOUT, :SETTLE, :WAIT_TIMEOUT

    attr_reader :connections

    # @param waiting [Numeric, nil] seconds that each request waits.
    # @param connections [Integer] as many, or as many as this process may have descriptors for.
    # @param beside [Integer, nil] busy connections.
    def initialize(connections:, path: "/", waiting: nil, beside: nil)
      @connections = [connections, (Process.getrlimit(:NOFILE).last - SPARE) / BATCH * BATCH].min
      @path = path
      @waiting = waiting
      @beside = Wrk.new(connections: beside, path:) if beside
    end

    def name = "crowd"

    def description
      "#{@connections} connections, one request each (path #{@path})#{@waiting ? "; all wait" : ", then idle"}" \
        "#{"; beside #{@beside.connections} busy ones" if @beside}"
    end

    def main_figure = :extra_memory

    # @return [Numeric] seconds, about: two times all of them, or until those that wait are answered.
    def duration(seconds) = 3 + (@waiting ? 2 * @waiting : @connections / (@beside ? 600 : 2_000)) + (@beside ? seconds : 0)

    # @param seconds [Numeric] for which others are busy; the memory is a state, not a speed.
    # @return [Hash{Symbol => Numeric}] memory in MB; closed_by_server: connections that were gone when it was measured. Of busy ones what
    #   {Wrk} says.
    def run(server, seconds)
      @request = "GET #{@path} HTTP/1.1\r\nHost: localhost\r\n\r\n"
      ask_in_turn(server) unless @waiting
      before = settled_memory(server)
      sockets, errors = gather(server)
      with_crowd = settled_memory(server)
      busy = @beside&.run(server, seconds) || {}
      closed = sockets.count { |socket| closed?(socket) }
      errors += sockets.count { |socket| !answered?(socket, WAIT_TIMEOUT) } if @waiting

      {
        **busy, connections: @connections, requests: (@connections * 2) + busy.fetch(:requests, 0), errors: errors + busy.fetch(:errors, 0),
        non_2xx: busy.fetch(:non_2xx, 0), closed_by_server: closed,
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
        sockets = open_batch(server)
        sockets.each { |socket| socket.write(@request) }
        sockets.each { |socket| answered?(socket) }
        sockets.each(&:close)
      end
    end

    def open_batch(server)
      openers = Array.new(OPENERS) do
        Thread.new { Array.new(BATCH / OPENERS) { server.connect } }.tap { |thread| thread.report_on_exception = false }
      end
      openers.flat_map(&:value)
    end

    def gather(server)
      errors = 0
      sockets = []
      (@connections / BATCH).times do
        batch = open_batch(server)
        batch.each { |socket| socket.write(@request) }
        errors += batch.count { |socket| !answered?(socket) } unless @waiting
        sockets.concat(batch)
      end
      [sockets, errors]
    rescue SystemCallError, OpenSSL::SSL::SSLError
      [sockets, @connections - sockets.size + errors]
    end

    # Answers of these workloads are small: head and body come in one piece or two.
    def answered?(socket, seconds = ANSWER_TIMEOUT)
      answer = +""
      until complete?(answer)
        piece = socket.read_nonblock(16_384, exception: false)
        return false if piece.nil? || (piece == :wait_readable && !socket.to_io.wait_readable(seconds))

        answer << piece unless piece == :wait_readable
      end
      answer.start_with?("HTTP/1.1 200")
    rescue SystemCallError, OpenSSL::SSL::SSLError
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

    # An answer that has come already is no end. What TLS sends between answers is not for us.
    def closed?(socket)
      return socket.read_nonblock(1, exception: false).nil? if socket.is_a?(OpenSSL::SSL::SSLSocket)

      ["", nil].include?(socket.recv_nonblock(1, Socket::MSG_PEEK, exception: false))
    rescue SystemCallError, OpenSSL::SSL::SSLError
      true
    end
  end
end
