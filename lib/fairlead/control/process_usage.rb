# frozen_string_literal: true

require "etc"

module Fairlead
  # What the system reports of a process.
  #
  # @!attribute cpu [Float] seconds of CPU time since its start.
  # @!attribute memory [Integer] bytes, see {.memory}.
  # @!attribute suspended [Boolean] whether a signal has stopped it.
  ProcessUsage = Data.define(:cpu, :memory, :suspended) do
    # @return [ProcessUsage, nil] nil if there is no such process here.
    def self.of(pid, linux: Platform::LINUX)
      cpu, state = linux ? from_proc(pid) : from_ps(pid)
      new(cpu:, memory: memory(pid), suspended: state.start_with?("T")) if cpu
    rescue SystemCallError
      nil
    end

    # Counts memory of its own, and its share of what it shares with other processes.
    #
    # @return [Integer] bytes; 0 if that is unknown.
    def self.memory(pid)
      rollup = "/proc/#{pid}/smaps_rollup"
      return File.read(rollup)[/^Pss:\s+(\d+) kB/, 1].to_i * 1024 if Platform::LINUX && File.readable?(rollup)

      `ps -o rss= -p #{pid}`.to_i * 1024
    rescue SystemCallError
      0
    end

    # The fields after the name, which may contain anything, in parentheses (proc_pid_stat(5)).
    def self.from_proc(pid)
      fields = File.read("/proc/#{pid}/stat")[/.*\) (.*)/m, 1].split
      [fields.values_at(11, 12).sum(&:to_i).fdiv(Etc.sysconf(Etc::SC_CLK_TCK)), fields.first]
    end

    # The time is "2-03:04:05", "3:04:05" or "4:05.67".
    def self.from_ps(pid)
      time, state = `ps -o time= -o stat= -p #{pid}`.split
      days, rest = time.to_s.match(/\A(?:(\d+)-)?(.+)/)&.captures
      [rest.split(":").inject(days.to_i * 24) { |sum, part| (sum * 60) + part.to_f }, state] if rest
    end
    private_class_method :from_proc, :from_ps
  end
end
