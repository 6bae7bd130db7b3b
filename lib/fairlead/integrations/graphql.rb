# frozen_string_literal: true

module Fairlead
  # GraphQL::Dataloader makes blocking fibers, for threads that have no scheduler: while one of them waits, all requests of the
  # thread would, those that hold the database connection for which it waits among them.
  module Graphql
    # What the constant means within GraphQL::Dataloader.
    class Fiber < ::Fiber
      def initialize(blocking: false, **options, &)
        super(blocking: blocking && ::Fiber.current_scheduler.nil?, **options, &)
      end
    end

    # To be called by whoever serves, once the app is loaded. May be called again.
    #
    # @return [void]
    def self.establish
      return unless defined?(::GraphQL::Dataloader) && !::GraphQL::Dataloader.const_defined?(:Fiber, false)

      ::GraphQL::Dataloader.const_set(:Fiber, Fiber) if Compatibility.fits?(:graphql)
    end
  end
end
