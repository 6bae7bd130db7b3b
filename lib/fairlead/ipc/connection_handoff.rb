# frozen_string_literal: true

require "socket"
require_relative "../parts"

module Fairlead
  # The socket pairs over which workers hand each other connections: one for each slot, made before any fork.
  # Every worker sends into all of them and receives from its own. The supervisor keeps both ends, so that what
  # has been sent to a worker that then ended is not lost.
  class ConnectionHandoff
    # @return [Array<Array(UNIXSocket, UNIXSocket)>] for each slot its receiving and its sending end.
    attr_reader :pairs

    # @param slots [Integer]
    def initialize(slots)
      @pairs = Array.new(slots) { PacketSocket.pair }
    end

    # @param slot [Integer]
    # @return [UNIXSocket] readable when something has been sent to that slot.
    def receiver(slot) = @pairs[slot].first

    # Passes on what nobody has received, when the worker of a slot has ended. What cannot be passed on stays.
    #
    # @param slot [Integer]
    # @param others [Array<Integer>] the slots of workers that serve.
    # @return [Integer] how many connections were passed on.
    def pass_on(slot, others)
      passed = 0
      # A full socket may stay full: look before taking. One that takes nothing keeps nothing from the others.
      while (index = others.index { |other| room?(other) }) && pass_one_on(slot, others[index])
        passed += 1
        others = others.rotate(index + 1)
      end
      passed
    end

    # @return [Boolean] whether something waits there that could not be passed on.
    def waits?(slot) = !receiver(slot).wait_readable(0).nil?

    def close = @pairs.flatten.each(&:close)

    private

    def pass_one_on(from, to)
      # With its sizes: to find them out it would look twice, and not every system shows the descriptors so.
      bytes, _, _, *control = @pairs[from].first.recvmsg_nonblock(
        PacketSocket::MOST, 0, PacketSocket::CONTROL, scm_rights: true, exception: false
      )
      return false unless bytes.is_a?(String)

      descriptors = control.flat_map { |message| message.unix_rights || [] }
      # Some systems say only then that it is full: there is room where it comes from.
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
