# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # What share of the time there is nothing to do: for this process, and for its machine.
    class Idleness
      def initialize
        @at = 0.0
        @tasks = {}
        @ran = @idle = @ticks = 0
      end

      # @param now [Float] seconds.
      # @return [Array(Float, Float)] since the last call, the less of the two: 0 to 1. A thread that waits for a CPU has
      #   something to do; and where the database is on the same machine, it may wait for one. And for how many seconds
      #   this process ran on a CPU.
      def since_last_call(now)
        seconds, @at = now - @at, now
        ran, @ran = @ran, Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
        ran = @ran - ran
        idle = begin
          [1 - (busy / seconds), of_machine].min
        rescue SystemCallError
          1 - (ran / seconds)
        end
        [idle.clamp(0.0, 1.0), ran]
      end

      private

      # A thread that has ended since takes nothing away.
      def busy
        before, @tasks = @tasks, Dir.children("/proc/self/task").to_h { |task| [task, busy_time_of(task)] }
        @tasks.sum { |task, time| [time - before.fetch(task, 0.0), 0.0].max }
      end

      # https://docs.kernel.org/scheduler/sched-stats.html
      def busy_time_of(task)
        ran, waited = File.read("/proc/self/task/#{task}/schedstat").split
        (ran.to_i + waited.to_i) / 1e9
      rescue Errno::ENOENT, Errno::ESRCH
        0.0 # it has ended
      end

      # Its last two figures, of guests, are in the first two as well:
      # https://docs.kernel.org/filesystems/proc.html#miscellaneous-kernel-statistics-in-proc-stat
      def of_machine
        ticks = File.open("/proc/stat", &:gets).split[1, 8].map(&:to_i)
        idle, all = @idle, @ticks
        @idle = ticks[3] + ticks[4]
        @ticks = ticks.sum
        @ticks > all ? (@idle - idle).fdiv(@ticks - all) : 0.0
      end
    end
  end
end
