# frozen_string_literal: true

require "etc"

module Bench
  # A server's processes, as /proc shows them: the one that was started and all that descend from it.
  class ProcessTree
    TICKS = Etc.sysconf(Etc::SC_CLK_TCK).to_f
    private_constant :TICKS

    def initialize(root)
      @root = root
    end

    # @return [Array<Integer>] the root's pid and those of its descendants that live.
    def pids
      children = Hash.new { |hash, parent| hash[parent] = [] }
      Dir.each_child("/proc") do |entry|
        next unless entry.match?(/\A\d+\z/)

        fields = stat(entry.to_i)
        children[fields[1].to_i] << entry.to_i if fields
      end
      found = [@root]
      found.each { |pid| found.concat(children[pid]) if children.key?(pid) }
      found
    end

    # @return [Float] seconds of CPU (user and system) used so far, with those of descendants that have ended.
    def cpu
      pids.sum { |pid| (stat(pid)&.values_at(11, 12, 13, 14) || []).sum(&:to_i) } / TICKS
    end

    # @return [Hash{Symbol => Float, Integer}] in MB: rss is the sum over all processes, which counts shared
    #   pages again for each; pss divides them among those who share them; peak_rss is the sum of each one's
    #   highest RSS.
    def memory
      totals = Hash.new(0.0)
      living = pids
      living.each do |pid|
        totals[:rss] += kilobytes(pid, "smaps_rollup", "Rss") / 1024.0
        totals[:pss] += kilobytes(pid, "smaps_rollup", "Pss") / 1024.0
        totals[:peak_rss] += kilobytes(pid, "status", "VmHWM") / 1024.0
      end
      totals.merge(processes: living.size)
    end

    # @return [Float] the same for all processes of a command's name and what has descended from them, whoever
    #   started them: a database's processes.
    def self.cpu_of(name)
      Dir.each_child("/proc").sum do |entry|
        next 0 unless entry.match?(/\A\d+\z/) && File.read("/proc/#{entry}/comm").chomp == name

        File.read("/proc/#{entry}/stat").rpartition(") ").last.split.values_at(11, 12, 13, 14).sum(&:to_i)
      rescue Errno::ENOENT, Errno::ESRCH
        0
      end / TICKS
    end

    # @return [Float] seconds of CPU that the whole machine has been busy since it started (also stolen ones).
    def self.machine_cpu
      user, nice, system, _idle, _iowait, irq, softirq, steal =
        File.read("/proc/stat")[/^cpu +(.*)$/, 1].split.map(&:to_i)
      (user + nice + system + irq + softirq + steal) / TICKS
    end

    private

    # The fields that follow the command's name (which may hold spaces and parentheses): state, parent, ….
    def stat(pid)
      File.read("/proc/#{pid}/stat").rpartition(") ").last.split
    rescue Errno::ENOENT, Errno::ESRCH
      nil
    end

    def kilobytes(pid, file, key)
      File.read("/proc/#{pid}/#{file}")[/^#{key}:\s+(\d+)/, 1].to_i
    rescue Errno::ENOENT, Errno::ESRCH, Errno::EACCES
      0
    end
  end
end
