# frozen_string_literal: true

module Fairlead
  # A process has one working folder. Ruby refuses Dir.chdir to a thread while another thread is within its block, but it does
  # not tell the fibers of a thread apart: a request that waits within its block would go on in the folder of another one, and
  # the worker would be left there. So fibers are refused alike, with Ruby's own error.
  module WorkingFolder
    CONFLICT = "conflicting chdir during another chdir block"
    # Who is within a block: the fiber of a request or a task, and that request, as a serving fiber has one after the other.
    Owner = Struct.new(:fiber, :request) do
      def self.current = new(FiberOwner.current, ServingFiber.request_of(Fiber.current))

      # @return [Boolean] whether its request goes on, or its task.
      def there? = fiber.alive? && (request.nil? || !request.answered? || ServingFiber.request_of(fiber).equal?(request))
    end
    private_constant :CONFLICT, :Owner

    # Of Dir itself.
    module DirClass
      def chdir(...) = WorkingFolder.change(block_given?) { super }
      def fchdir(...) = WorkingFolder.change(block_given?) { super }
    end

    # Of a Dir.
    module DirInstance
      def chdir(...) = WorkingFolder.change(block_given?) { super }
    end
    private_constant :DirClass, :DirInstance

    class << self
      # To be called by whoever serves. May be called again.
      #
      # @return [void]
      def establish
        ::Dir.singleton_class.prepend(DirClass)
        ::Dir.prepend(DirInstance)
      end

      # @api private
      # @param block [Boolean] whether the folder is left again.
      def change(block)
        return yield unless ::Fiber.scheduler.is_a?(Scheduler)

        owner = Owner.current
        raise CONFLICT if @owner && @owner != owner && @owner.there?
        return yield if !block || @owner == owner

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
