# frozen_string_literal: true

require "etc"

module Fairlead
  class Status
    # What the system says of a process.
    #
    # @!attribute cpu [Float] seconds that it has computed since it began.
    # @!attribute memory [Integer] bytes that it takes for itself, with its part of what it shares.
    # @!attribute suspended [Boolean] whether a signal has stopped it.
    Consumption = Data.define(:cpu, :memory, :suspended) do
      # @param pid [Integer]
      # @return [Consumption, nil] nil if there is no such process here.
      def self.of(pid, linux: Platform::LINUX)
        cpu, state = linux ? from_proc(pid) : from_ps(pid)
        new(cpu:, memory: WorkerRecycler.memory(pid), suspended: state.start_with?("T")) if cpu
      rescue SystemCallError
        nil
      end

      # After the name, which may be anything, in parentheses (proc_pid_stat(5)).
      def self.from_proc(pid)
        fields = File.read("/proc/#{pid}/stat")[/.*\) (.*)/m, 1].split
        [fields.values_at(11, 12).sum(&:to_i).fdiv(Etc.sysconf(Etc::SC_CLK_TCK)), fields.first]
      end

      # "2-03:04:05", "3:04:05" or "4:05.67".
      def self.from_ps(pid)
        time, state = `ps -o time= -o stat= -p #{pid}`.split
        days, rest = time.to_s.match(/\A(?:(\d+)-)?(.+)/)&.captures
        [rest.split(":").inject(days.to_i * 24) { |sum, part| (sum * 60) + part.to_f }, state] if rest
      end
      private_class_method :from_proc, :from_ps
    end
  end
end
