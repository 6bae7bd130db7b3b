# frozen_string_literal: true

require_relative "../helper"

module Fairlead
  class SignalsTest < Test
    def setup
      super
      @before = trap(:USR2) { @elsewhere = true }
      @signals = Signals.new(:USR2, :HUP)
    end

    def teardown
      @signals.restore unless @restored
      trap(:USR2, @before)
      super
    end

    def test_a_signal_can_be_waited_for
      assert_empty @signals.take
      Process.kill(:USR2, Process.pid)

      assert @signals.io.wait_readable(5)
      assert_equal [:USR2], @signals.take
      assert_empty @signals.take
    end

    def test_signals_keep_their_order
      @signals.record(:HUP)
      @signals.record(:USR2)

      assert_equal %i[HUP USR2], @signals.take
    end

    def test_what_was_trapped_before_is_trapped_again
      @signals.restore
      @restored = true
      Process.kill(:USR2, Process.pid)

      eventually("the trap") { @elsewhere }
    end

    def test_a_child_that_is_forked_does_not_speak_to_its_parent
      Process.wait(fork { @signals.record(:HUP) || exit!(0) })

      assert_empty @signals.take
    end
  end
end
