# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # What share of the time there is nothing to do: for this process, and for its machine, since a process that waits for a
    # processor does not run either, and the database may be on the same machine.
    class CpuIdle
      def initialize
        @at = @ran = 0.0
        @idle = @ticks = 0
      end

      # @param now [Float] seconds.
      # @return [Float] the less of the two since the last call: 0 to 1.
      def since_last_call(now)
        [of_process(now), of_machine].min.clamp(0.0, 1.0)
      end

      private

      def of_process(now)
        seconds, @at = now - @at, now
        before, @ran = @ran, Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
        1 - ((@ran - before) / seconds)
      end

      # Its last two figures, of guests, are in the first two as well:
      # https://docs.kernel.org/filesystems/proc.html#miscellaneous-kernel-statistics-in-proc-stat
      def of_machine
        ticks = File.open("/proc/stat", &:gets).split[1, 8].map(&:to_i)
        idle, all = @idle, @ticks
        @idle = ticks[3] + ticks[4]
        @ticks = ticks.sum
        @ticks > all ? (@idle - idle).fdiv(@ticks - all) : 0.0
      rescue SystemCallError
        1.0 # a system without it
      end
    end
  end
end
