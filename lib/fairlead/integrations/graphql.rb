# frozen_string_literal: true

module Fairlead
  # Has GraphQL::Dataloader make fibers that do not block. Its own block the thread while they wait, and with it all of its
  # requests, perhaps one that holds the database connection they wait for.
  module Graphql
    # The constant `Fiber` within GraphQL::Dataloader.
    class Fiber < ::Fiber
      def initialize(blocking: false, **options, &)
        super(blocking: blocking && ::Fiber.current_scheduler.nil?, **options, &)
      end
    end

    # Call it once the app is loaded, in a process that serves. May be called again.
    def self.establish
      return unless defined?(::GraphQL::Dataloader) && !::GraphQL::Dataloader.const_defined?(:Fiber, false)

      ::GraphQL::Dataloader.const_set(:Fiber, Fiber) if Compatibility.fits?(:graphql)
    end
  end
end
