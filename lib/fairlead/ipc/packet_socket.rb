# frozen_string_literal: true

require "socket"

module Fairlead
  # Socket pairs that keep messages apart, carry descriptors, and send a message as a whole or not at all.
  module PacketSocket
    MOST = 80_000
    # Bytes that a receiver reserves for the descriptors of a message.
    CONTROL = 256
    # Bytes of a socket's buffer. macOS would take no message of more than 2 KB otherwise.
    ROOM = 4 * MOST
    private_constant :ROOM

    def self.pair
      pair = UNIXSocket.pair(Platform::PACKETS)
      return pair if Platform::LINUX # its default is enough

      pair.each do |socket|
        socket.setsockopt(:SOCKET, :SNDBUF, ROOM)
        socket.setsockopt(:SOCKET, :RCVBUF, ROOM)
      end
    end
  end
end
