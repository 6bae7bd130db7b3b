# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # Of ConnectionHandling. Code for fibers that have a state of their own chooses again what was chosen around them, for good
    # (as GraphQL::Dataloader's guide has it). In a fiber that shares its request's choice, there is nothing to do: it would
    # outlive the fiber.
    module InheritedRole
      def connecting_to(role: default_role, shard: default_shard, prevent_writes: false)
        prevented = prevent_writes || role == ::ActiveRecord.reading_role
        return if !::Fiber.current.equal?(FiberOwner.current) &&
                  [role, shard, prevented] == [current_role, current_shard, current_preventing_writes]

        super
      end
    end
  end
end
