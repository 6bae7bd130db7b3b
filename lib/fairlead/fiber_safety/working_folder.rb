# frozen_string_literal: true

module Fairlead
  # Refuses Dir.chdir to a fiber while another fiber is within its block, with the error that Ruby raises between threads. A process
  # has one working folder: a request that waits within its block would go on in the folder of another request, and the worker
  # would be left there.
  module WorkingFolder
    CONFLICT = "conflicting chdir during another chdir block"
    private_constant :CONFLICT

    # Prepended to Dir's singleton class.
    module DirClass
      def chdir(...) = WorkingFolder.change(block_given?) { super }
      def fchdir(...) = WorkingFolder.change(block_given?) { super }
    end

    # Prepended to Dir.
    module DirInstance
      def chdir(...) = WorkingFolder.change(block_given?) { super }
    end
    private_constant :DirClass, :DirInstance

    class << self
      # Called by the server. May be called again.
      #
      # @return [void]
      def establish
        ::Dir.singleton_class.prepend(DirClass)
        ::Dir.prepend(DirInstance)
      end

      # @api private
      # @param block [Boolean] whether the folder is left again.
      def change(block)
        return yield unless ::Fiber.scheduler.is_a?(ServingScheduler)

        owner = FiberOwner.current
        raise CONFLICT if @owner&.alive? && !@owner.equal?(owner)
        return yield if !block || @owner.equal?(owner)

        begin
          @owner = owner
          yield
        ensure
          @owner = nil
        end
      end
    end
  end
end
