# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  class ProcessUsageTest < Test
    def test_proc_and_ps_agree
      limit = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) + 1.2
      nil while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < limit
      [true, false].each do |linux|
        used = ProcessUsage.of(Process.pid, linux:)

        assert_in_delta Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID), used.cpu, 1.1
        assert_operator used.memory, :>, 1_000_000
        refute used.suspended
      end
    end

    def test_a_process_that_has_gone_has_no_usage
      gone = Process.wait(fork { exit!(0) })

      [true, false].each { |linux| assert_nil ProcessUsage.of(gone, linux:) }
      assert_equal 0, ProcessUsage.memory(gone)
    end
  end
end
