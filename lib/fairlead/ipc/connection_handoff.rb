# frozen_string_literal: true

require "socket"

module Fairlead
  # The socket pairs over which workers hand each other connections: one for each slot, made before any fork. Every worker sends
  # into all of them and receives from its own. The supervisor keeps both ends, so that nothing is lost when a receiver ends.
  class ConnectionHandoff
    # @return [Array<Array(UNIXSocket, UNIXSocket)>] for each slot its receiving and its sending end.
    attr_reader :pairs

    def initialize(slots)
      @pairs = Array.new(slots) { PacketSocket.pair }
    end

    # @return [UNIXSocket] readable when a connection has been sent to that slot.
    def receiver(slot) = @pairs[slot].first

    # Passes on the connections that a worker has not received before it ended, to the slots of others. Those that cannot be
    # passed on stay.
    #
    # @return [Integer] how many connections were passed on.
    def pass_on(slot, others)
      passed = 0
      # Room first: a full socket may stay full, and must not keep connections from the others.
      while (index = others.index { |other| room?(other) }) && pass_one_on(slot, others[index])
        passed += 1
        others = others.rotate(index + 1)
      end
      passed
    end

    # @return [Boolean] whether a connection is left that could not be passed on.
    def waiting?(slot) = !receiver(slot).wait_readable(0).nil?

    def close = @pairs.flatten.each(&:close)

    private

    def pass_one_on(from, to)
      # With sizes: Ruby would peek to find them, and not every system shows descriptors then.
      bytes, _, _, *control = @pairs[from].first.recvmsg_nonblock(
        PacketSocket::MOST, 0, PacketSocket::CONTROL, scm_rights: true, exception: false
      )
      return false unless bytes.is_a?(String)

      descriptors = control.flat_map { |message| message.unix_rights || [] }
      # Some systems report a full socket only now; there is room where it came from.
      send_to(to, bytes, descriptors) || (send_to(from, bytes, descriptors) && false)
    rescue SystemCallError
      false
    ensure
      descriptors&.each(&:close)
    end

    def room?(slot) = @pairs[slot].last.wait_writable(0)

    def send_to(slot, bytes, descriptors)
      rights = Socket::AncillaryData.unix_rights(*descriptors)
      @pairs[slot].last.sendmsg_nonblock(bytes, 0, nil, rights, exception: false) != :wait_writable
    rescue SystemCallError
      false
    end
  end
end
