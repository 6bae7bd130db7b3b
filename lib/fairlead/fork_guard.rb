# frozen_string_literal: true

module Fairlead
  # Sees every fork of a process that serves: Kernel#fork, Process.daemon, IO.popen("-"). In the child, connections and
  # listeners are the parent's. No other thread is at work on them as the memory is copied.
  module ForkGuard
    class << self
      # @return [Array<Server>] those that run in this process.
      def servers = (@servers ||= [])

      # In the child.
      def forget
        servers.each(&:forget)
        servers.clear
      end
    end

    def _fork
      held = ForkGuard.servers.dup.each(&:hold)
      pid = super
      ForkGuard.forget if pid.zero?
      pid
    ensure
      held.each(&:let_go) unless pid&.zero?
    end
  end
  Process.singleton_class.prepend(ForkGuard)
end
