# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # Of ConnectionHandling. Code written for fibers with a state of their own repeats, for good, the role and shard chosen
    # around it (GraphQL::Dataloader's guide recommends it). A fiber that shares its request's choice must not: the choice
    # would outlive the fiber.
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
