# frozen_string_literal: true

module Fairlead
  # Sees every fork of a process that serves: Kernel#fork, Process.daemon, IO.popen("-"). In the child, connections and
  # listeners are the parent's. That nobody is at work on them as the memory is copied, the extension sees to.
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
      super.tap { |pid| ForkGuard.forget if pid.zero? }
    end
  end
  Process.singleton_class.prepend(ForkGuard)
end
