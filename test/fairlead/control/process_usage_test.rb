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

    def test_descriptors_are_counted
      before = ProcessUsage.of(Process.pid).descriptors
      held = Array.new(5) { File.open(File::NULL) }

      assert_equal before[:open] + 5, ProcessUsage.descriptors(Process.pid)[:open]
      assert_equal Process.getrlimit(:NOFILE).first, before[:limit]
      held.each(&:close)
      assert_nil ProcessUsage.descriptors((1 << 22) + 1)
      assert_nil ProcessUsage.brief(Process.pid).descriptors
    end

    def test_memory_is_looked_for_only_where_it_may_be
      assert_equal 0, ProcessUsage.memory_from(1 << 40, Process.pid)
      assert_operator ProcessUsage.memory_from(1 << 20, Process.pid), :>, 1 << 20
    end

    def test_a_process_that_has_gone_has_no_usage
      gone = Process.wait(fork { exit!(0) })

      [true, false].each { |linux| assert_nil ProcessUsage.of(gone, linux:) }
      assert_equal [0, 0], [ProcessUsage.memory(gone), ProcessUsage.memory_from(1, gone)]
    end
  end
end
