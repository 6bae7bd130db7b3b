# frozen_string_literal: true

require "json"
require "open3"
require_relative "native_program"
require_relative "wrk"

module Bench
  # TLS connections that are opened for one request each. See handshakes.c.
  class Handshakes
    attr_reader :connections

    # @param connections [Integer] clients, each of which opens its next connection once its last one has ended.
    # @param resumed [Boolean] whether clients resume the session of their last connection.
    def initialize(connections:, resumed: false, path: "/")
      @connections = connections
      @resumed = resumed
      @path = path
    end

    def name = "handshakes"

    def description
      "#{@connections} clients, a new TLS connection for each request#{", resuming the last one's session" if @resumed} (path #{@path})"
    end

    def main_figure = :requests_per_second

    # @return [Hash{Symbol => Numeric}] latencies in milliseconds, from the opening of a connection to the end of its response;
    #   resumed: the share of connections whose session was an earlier one's.
    def run(server, seconds)
      output, status = Open3.capture2(
        NativeProgram.path("handshakes", "-lssl", "-lcrypto", "-lpthread"), server.port.to_s, @path, seconds.to_s, @connections.to_s,
        @resumed ? "1" : "0"
      )
      raise Wrk::Failed, "the load generator failed" unless status.success?

      figures = JSON.parse(output, symbolize_names: true)
      good = figures[:requests] - figures[:non_2xx]
      { **figures, requests_per_second: good.fdiv(figures[:seconds]), resumed: figures[:resumed].fdiv([figures[:requests], 1].max) }
    end
  end
end
