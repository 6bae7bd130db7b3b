# frozen_string_literal: true

require "socket"
require_relative "../parts"

module Fairlead
  # Socket pairs whose messages stay apart, may carry descriptors, and are sent as a whole or not at all.
  module PacketSocket
    # Bytes: more than any message has.
    MOST = 80_000
    # Bytes that a receiver keeps room for, for the descriptors of a message.
    CONTROL = 256
    # Bytes that wait in a socket at the most. macOS would take no message of more than 2 KB otherwise.
    ROOM = 4 * MOST
    private_constant :ROOM

    # @return [Array(UNIXSocket, UNIXSocket)]
    def self.pair
      pair = UNIXSocket.pair(Platform::PACKETS)
      return pair if Platform::LINUX # what the system gives is enough there

      pair.each do |socket|
        socket.setsockopt(:SOCKET, :SNDBUF, ROOM)
        socket.setsockopt(:SOCKET, :RCVBUF, ROOM)
      end
    end
  end
end
