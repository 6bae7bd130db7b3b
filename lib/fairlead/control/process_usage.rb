# frozen_string_literal: true

require "etc"

module Fairlead
  # What the system reports of a process.
  #
  # @!attribute cpu [Float] seconds of CPU time since its start.
  # @!attribute memory [Integer] bytes, see {.memory}.
  # @!attribute suspended [Boolean] whether a signal has stopped it.
  # @!attribute descriptors [Hash, nil] `{ open:, limit: }`; nil: unknown.
  ProcessUsage = Data.define(:cpu, :memory, :suspended, :descriptors) do
    # @param known [ProcessUsage, nil] whose figures hold where reading them costs time: memory and descriptors.
    # @return [ProcessUsage, nil] nil if there is no such process here.
    def self.of(pid, linux: Platform::LINUX, known: nil)
      cpu, state = linux ? from_proc(pid) : from_ps(pid)
      return unless cpu

      costly = known ? known.to_h.slice(:memory, :descriptors) : { memory: memory(pid), descriptors: (descriptors(pid) if linux) }
      new(cpu:, suspended: state.start_with?("T"), **costly)
    rescue SystemCallError
      nil
    end

    # Only what is cheap to find; memory is 0.
    #
    # @return [ProcessUsage, nil] (see .of)
    def self.brief(pid) = of(pid, known: self::NOTHING)

    # @return [Float, nil] seconds of CPU time since its start; nil if there is no such process here.
    def self.cpu(pid) = brief(pid)&.cpu

    # @return [Integer, nil] the user who runs it; nil if there is no such process here.
    def self.user(pid)
      text = Platform::LINUX ? File.read("/proc/#{Integer(pid)}/status")[/^Uid:\t(\d+)/, 1] : `ps -o ruid= -p #{Integer(pid)}`[/\d+/]
      text&.to_i
    rescue SystemCallError, TypeError, ArgumentError
      nil
    end

    # Before Linux 6.2 the size of the folder is 0.
    #
    # @return [Hash, nil] `{ open:, limit: }`, with the soft limit; nil if they are unknown.
    def self.descriptors(pid)
      folder = "/proc/#{pid}/fd"
      open = File.size(folder)
      limit = File.read("/proc/#{pid}/limits")[/^Max open files +(\d+)/, 1] or return
      { open: open.zero? ? Dir.each_child(folder).count : open, limit: limit.to_i }
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

    # To find {.memory}, the kernel walks the pages of the process: not of one that takes less with all that it shares.
    #
    # @param least [Numeric] bytes.
    # @return [Integer] (see .memory); 0 also if it takes less than the least.
    def self.memory_from(least, pid) = resident(pid).to_i < least ? 0 : memory(pid)

    # Resident memory, with what it shares. It is cheap to find: the kernel walks no pages of the process.
    #
    # @return [Integer, nil] bytes; nil if there is no such process here.
    def self.resident(pid)
      return `ps -o rss= -p #{pid}`[/\d+/]&.then { |kilobytes| kilobytes.to_i * 1024 } unless Platform::LINUX

      File.read("/proc/#{pid}/statm").split[1].to_i * Etc.sysconf(Etc::SC_PAGESIZE)
    rescue SystemCallError
      nil
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
  ProcessUsage::NOTHING = ProcessUsage.new(cpu: 0.0, memory: 0, suspended: false, descriptors: nil)
end
