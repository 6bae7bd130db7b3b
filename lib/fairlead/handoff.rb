# frozen_string_literal: true

require "socket"
require_relative "parts"

module Fairlead
  # The socket pairs over which workers hand each other connections: one for each slot, made before any fork.
  # Every worker sends into all of them and receives from its own. The supervisor keeps both ends, so that what
  # has been sent to a worker that then ended is not lost.
  class Handoff
    # @return [Array<Array(UNIXSocket, UNIXSocket)>] for each slot its receiving and its sending end.
    attr_reader :pairs

    # @param slots [Integer]
    def initialize(slots)
      @pairs = Array.new(slots) { UNIXSocket.pair(:SEQPACKET) }
    end

    # Passes on what nobody has received, when the worker of a slot has ended. What cannot be passed on stays
    # for the next worker of the slot.
    #
    # @param slot [Integer]
    # @param others [Array<Integer>] the slots of workers that serve.
    # @return [Integer] how many connections were passed on.
    def pass_on(slot, others)
      return 0 if others.empty?

      others = others.cycle
      passed = 0
      passed += 1 while pass_one_on(@pairs[slot].first, @pairs[others.next].last)
      passed
    end

    def close = @pairs.flatten.each(&:close)

    private

    def pass_one_on(receiver, sender)
      # A full socket may stay full: look before taking.
      return false unless sender.wait_writable(0)

      bytes, _, _, *control = receiver.recvmsg_nonblock(scm_rights: true, exception: false)
      return false unless bytes.is_a?(String)

      descriptors = control.flat_map { |message| message.unix_rights || [] }
      sender.sendmsg_nonblock(bytes, 0, nil, Socket::AncillaryData.unix_rights(*descriptors))
      true
    rescue SystemCallError
      false
    ensure
      descriptors&.each(&:close)
    end
  end
end
