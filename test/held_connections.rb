# frozen_string_literal: true

module Fairlead
  # Which TCP connections a process has: what is lost when it is killed, and nothing else.
  module HeldConnections
    # Seconds that a process may take to stand still.
    PATIENCE = 10
    # A process that has ended stands still too.
    STILL = %w[T Z X].freeze
    private_constant :PATIENCE, :STILL

    class << self
      # Stops the process, and leaves it so: else it would take some and close some meanwhile.
      #
      # @param pid [Integer]
      # @return [Array<Integer>] the ports of its peers.
      # @raise [SystemCallError] if there is no such process.
      def of(pid)
        stop(pid)
        inodes = Dir.children("/proc/#{pid}/fd").filter_map { |name| File.readlink("/proc/#{pid}/fd/#{name}")[/\Asocket:\[(\d+)\]/, 1] }
        connections = File.readlines("/proc/#{pid}/net/tcp").drop(1).map(&:split).select { |fields| inodes.include?(fields[9]) }
        connections.map { |fields| fields[2][/\h+\z/].hex } - [0] # a listener has no peer
      end

      # Stops it, and waits until it stands still: each of its threads stops for itself.
      def stop(pid)
        Process.kill(:STOP, pid)
        limit = now + PATIENCE
        until threads(pid).all? { |state| STILL.include?(state) }
          raise "process #{pid} did not stop within #{PATIENCE} s" if now > limit

          sleep(0.001)
        end
      end

      private

      # @return [Array<String, nil>] the state of each; nil if it has just ended.
      def threads(pid)
        Dir.children("/proc/#{pid}/task").map do |id|
          File.read("/proc/#{pid}/task/#{id}/stat")[/\) (.)/, 1]
        rescue Errno::ENOENT, Errno::ESRCH
          nil
        end
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
