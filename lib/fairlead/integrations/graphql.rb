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

      return unless Compatibility.fits?(:graphql)

      ::GraphQL::Dataloader.const_set(:Fiber, Fiber)
      Compatibility.works?(:graphql) { used? }
    end

    def self.used?
      loader = ::GraphQL::Dataloader.new
      fiber = nil
      loader.append_job { fiber = ::Fiber.current }
      loader.run
      fiber.is_a?(Fiber)
    end
    private_class_method :used?
  end
end
