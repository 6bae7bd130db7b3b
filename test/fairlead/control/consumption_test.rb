# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  class Status
    # What the system says of a process, asked in both ways.
    class ConsumptionTest < Test
      def test_both_ways_say_the_same
        limit = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) + 1.2
        nil while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < limit
        [true, false].each do |linux|
          used = Consumption.of(Process.pid, linux:)

          assert_in_delta Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID), used.cpu, 1.1
          assert_operator used.memory, :>, 1_000_000
          refute used.suspended
        end
      end

      def test_of_a_process_that_is_not_there_nothing_is_said
        gone = Process.wait(fork { exit!(0) })
        [true, false].each { |linux| assert_nil Consumption.of(gone, linux:) }
      end
    end
  end
end
