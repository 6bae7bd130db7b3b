# frozen_string_literal: true

module Fairlead
  # Refuses Dir.chdir to a fiber while another fiber is within its block, with the error that Ruby raises between threads. A process
  # has one working folder: a request that waits within its block would go on in the folder of another request, and the worker
  # would be left there.
  module WorkingFolder
    CONFLICT = "conflicting chdir during another chdir block"
    # Who is within a block: the fiber of a request or a task, and its request, since a serving fiber has one after the other.
    Owner = Struct.new(:fiber, :request) do
      def self.current = new(FiberOwner.current, WorkingFolder.request_of(Fiber.current))

      # @return [Boolean] whether its request goes on, or its task.
      def there? = fiber.alive? && (request.nil? || !request.answered? || WorkingFolder.request_of(fiber).equal?(request))
    end
    private_constant :CONFLICT, :Owner

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
      # @param request_of [#call] returns the request that a fiber works for, or nil.
      # @return [void]
      def establish(request_of)
        @request_of = request_of
        ::Dir.singleton_class.prepend(DirClass)
        ::Dir.prepend(DirInstance)
      end

      # @api private
      def request_of(fiber) = @request_of.call(fiber)

      # @api private
      # @param block [Boolean] whether the folder is left again.
      def change(block)
        return yield unless ::Fiber.scheduler.is_a?(ServingScheduler)

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
