# frozen_string_literal: true

require "socket"

module Bench
  # A TCP port for a server that another process opens in a moment, which therefore has to be told.
  module FreePort
    # None of those that the system gives to connections (ip_local_port_range): one of them could take it before the server does.
    RANGE = 10_000..30_000
    private_constant :RANGE

    # @return [Integer] a port on which nobody listens at 127.0.0.1.
    def self.find
      port = Random.new.rand(RANGE)
      TCPServer.new("127.0.0.1", port).close
      port
    rescue Errno::EADDRINUSE
      retry
    end
  end
end
