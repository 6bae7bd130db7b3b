# frozen_string_literal: true

require_relative "stray_child"

module Fairlead
  # Has the child of a fork forget the server of its parent. The extension has closed all sockets of clients and listeners by then
  # (ext/fairlead/fork.c); this is the rest. It is done whatever is raised as the fork returns.
  module ForkGuard
    class << self
      # @return [Array<Server>] that run in this process.
      def servers = (@servers ||= [])

      # @return [Array<#close_channels>] what has addresses or channels of this process open, and is no server. They are there before
      #   the app is loaded, and its threads may fork at any time.
      def holders = (@holders ||= [])

      # Forks a process of Fairlead's own. It keeps what is open, and closes what it does not need.
      #
      # @yield in the new process
      # @return [Integer] its id.
      # @raise [SystemCallError]
      def fork_own(&)
        @own = Thread.current
        Process.fork(&)
      ensure
        @own = nil
      end

      # @return [Boolean] whether this process is one of a server, and no child of the app.
      def serves? = servers.any? || holders.any?

      # Called in the child.
      #
      # @param scheduler [Object, nil] of the thread that has forked it
      def forget_server(scheduler)
        return forget_holders if @own.equal?(Thread.current) || !serves?

        Signals.leave_to_default(servers.any? ? "SYSTEM_DEFAULT" : "DEFAULT")
        holders.each(&:close_channels)
        forget_holders
        return if servers.empty?

        servers.each(&:close_channels).clear
        return unless scheduler.is_a?(ServingScheduler)

        StrayChild.end_with_tasks_of(scheduler)
        scheduler.process_fork if Fiber.scheduler # else Async has done so
      end

      private

      def forget_holders
        holders.clear
        @own = nil
      end
    end

    # Of fork with a block: async's loop masks the exceptions of signals for its whole thread, and so for the child.
    module Block
      def fork(&block)
        return super unless block && Fiber.scheduler

        super() { Thread.handle_interrupt(SignalException => :immediate, &block) }
      end
    end

    # The same for Kernel, where fork is private.
    module PrivateBlock
      include Block

      private :fork
    end
    private_constant :Block, :PrivateBlock

    # Called by the server. May be called again.
    def self.establish
      [::Process, ::Kernel].each { |owner| owner.singleton_class.prepend(Block) }
      ::Kernel.prepend(PrivateBlock) unless ::Kernel.include?(PrivateBlock)
    end

    def _fork
      scheduler = Fiber.scheduler
      parent = Process.pid
      super
    ensure
      ForkGuard.forget_server(scheduler) if Process.pid != parent
    end

    # (see Process.daemon) It ends the calling process, which serves other requests.
    def daemon(...)
      return super unless ForkGuard.serves?

      raise NotImplementedError, "Process.daemon would end this server: call it in a forked child"
    end
  end
  Process.singleton_class.prepend(ForkGuard)
end
