# frozen_string_literal: true

require "socket"

module Fairlead
  # From Ruby 3.4 on, TCPSocket.new (and so Net::HTTP) looks names up in threads of its own, to try several addresses at
  # once, and does not ask the fiber scheduler: the fiber blocks its thread until there is an answer. The older way asks.
  module NameLookup
    # To be called by whoever serves.
    #
    # @return [void]
    def self.establish = (::Socket.tcp_fast_fallback = false if ::Socket.respond_to?(:tcp_fast_fallback=))
  end
end
