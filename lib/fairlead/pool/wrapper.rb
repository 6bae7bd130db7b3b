# frozen_string_literal: true

module Fairlead
  class Pool
    # Looks like one connection and takes one from the pool for each call. Use #with for several calls that need the same
    # connection.
    class Wrapper < ::BasicObject
      METHODS = %i[with pool_shutdown pool_size pool_available wrapped_pool].freeze

      # @param pool [Pool] an existing pool; without it, the options and the block go to Pool.new.
      def initialize(pool: nil, **options, &block)
        @pool = pool || ::Fairlead::Pool.new(**options, &block)
      end

      def wrapped_pool = @pool
      def with(**options, &block) = @pool.with(**options, &block)
      def pool_shutdown(&block) = @pool.shutdown(&block)
      def pool_size = @pool.size
      def pool_available = @pool.available

      def respond_to?(name, *arguments)
        METHODS.include?(name) || with { |connection| connection.respond_to?(name, *arguments) }
      end

      def respond_to_missing?(name, *arguments) = with { |connection| connection.respond_to?(name, *arguments) }

      def method_missing(name, *arguments, **options, &block)
        with { |connection| connection.send(name, *arguments, **options, &block) }
      end
    end
  end
end
