# frozen_string_literal: true

module Fairlead
  # The clocks that durations are measured with, in seconds.
  module Clock
    # @return [Float] of the system's monotonic clock.
    def self.now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # @return [Integer] of the same clock, in microseconds, as the core and the shared page keep time.
    def self.microseconds = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)

    # @return [Float] of CPU that this process has used.
    def self.process_cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)

    # @return [Float] of CPU that the current thread has used.
    def self.thread_cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)

    # The collector's time is nobody's: in whose turn it comes is chance.
    #
    # @return [Float] of CPU that the current thread has used, without what collections have taken.
    def self.thread_cpu_without_gc = thread_cpu - (GC.total_time / 1e9)
  end
end
