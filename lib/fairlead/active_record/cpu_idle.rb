# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # Measures which share of the time is idle: of this process, and of its machine, on which the process may wait for a
    # processor, and the database may run, too.
    class CpuIdle
      def initialize
        @sampled_at = @cpu_seconds = 0.0
        @idle_ticks = @ticks = 0
      end

      # @param now [Float] seconds.
      # @return [Float] the lower of both shares since the last call: 0 to 1.
      def since_last_call(now) = [of_process(now), of_machine].min.clamp(0.0, 1.0)

      private

      def of_process(now)
        seconds, @sampled_at = now - @sampled_at, now
        before, @cpu_seconds = @cpu_seconds, Clock.process_cpu
        1 - ((@cpu_seconds - before) / seconds)
      end

      # Without the last two figures: the time of guests is also in the first two.
      # https://docs.kernel.org/filesystems/proc.html#miscellaneous-kernel-statistics-in-proc-stat
      def of_machine
        figures = File.open("/proc/stat", &:gets).split[1, 8].map(&:to_i)
        idle, all = @idle_ticks, @ticks
        @idle_ticks = figures[3] + figures[4]
        @ticks = figures.sum
        @ticks > all ? (@idle_ticks - idle).fdiv(@ticks - all) : 0.0
      rescue SystemCallError
        1.0 # a system without it
      end
    end
  end
end
