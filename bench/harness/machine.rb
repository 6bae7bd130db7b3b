# frozen_string_literal: true

require "etc"
require "open3"

module Bench
  # Where a result was measured.
  module Machine
    module_function

    # @return [Hash{Symbol => Object}]
    def description
      {
        cpu: File.read("/proc/cpuinfo")[/^model name\s*: (.*)$/, 1] || Etc.uname[:machine],
        cores: Etc.nprocessors,
        memory_mb: File.read("/proc/meminfo")[/^MemTotal: +(\d+)/, 1].to_i / 1024,
        kernel: Etc.uname.values_at(:sysname, :release).join(" "),
        system: File.read("/etc/os-release")[/^PRETTY_NAME="(.*)"$/, 1]
      }
    end

    # @return [String] "wrk 4.1.0".
    def wrk_version = version("wrk", "-v")[/^wrk [^ ]+/]

    # @return [String] what a program says of itself.
    def version(program, flag)
      Open3.capture2e(program, flag).first.lines.first.strip
    rescue Errno::ENOENT
      raise UsageError, "#{program} is not installed: apt-get install #{program}"
    end
  end
end
