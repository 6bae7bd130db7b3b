# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  class HandoffTest < Test
    def setup
      super
      @handoff = ConnectionHandoff.new(4)
    end

    def teardown
      @handoff.close
      super
    end

    def test_what_was_sent_to_a_worker_that_ended_goes_to_the_others_in_turn
      ends = Array.new(3) { |index| hand_over("message #{index}", to: 0) }

      assert_equal 3, @handoff.pass_on(0, [1, 3])
      received = [receive(1), receive(3), receive(1)]
      assert_equal ["message 0", "message 1", "message 2"], received.map(&:first)
      received.each(&:last).each_with_index { |(_, io), index| io.write("to #{index}") && io.close }
      assert_equal ["to 0", "to 1", "to 2"], ends.map(&:read)
      assert_nil receive(0)
    ensure
      ends.each(&:close)
    end

    def test_one_that_takes_nothing_keeps_nothing_from_the_others
      client = hand_over("message", to: 0)
      fill(1)

      assert_equal 1, @handoff.pass_on(0, [1, 3])
      assert_equal "message", receive(3).first
    ensure
      client.close
    end

    def test_when_nobody_serves_it_stays_for_the_next_worker_of_the_slot
      client = hand_over("message", to: 2)

      assert_equal 0, @handoff.pass_on(2, [])
      assert_equal "message", receive(2).first
    ensure
      client.close
    end

    def test_what_another_one_cannot_take_after_all_is_not_lost
      client = hand_over("message", to: 0)
      @handoff.pairs[1].first.close # that it can be sent to does not mean that it is taken

      assert_equal 0, @handoff.pass_on(0, [1])
      bytes, io = receive(0)
      assert_equal "message", bytes
      io.write("still here") && io.close
      assert_equal "still here", client.read
    ensure
      client.close
    end

    private

    # @return [UNIXSocket] the client's end of the connection that was handed over.
    def hand_over(bytes, to:)
      client, server = UNIXSocket.pair
      @handoff.pairs[to].last.sendmsg(bytes, 0, nil, Socket::AncillaryData.unix_rights(server))
      server.close
      client
    end

    def fill(slot)
      nil until @handoff.pairs[slot].last.sendmsg_nonblock("x" * 1024, exception: false) == :wait_writable
    end

    def receive(slot)
      bytes, _, _, control = @handoff.pairs[slot].first.recvmsg_nonblock(scm_rights: true, exception: false)
      [bytes, control.unix_rights.first] if bytes.is_a?(String)
    end
  end
end
