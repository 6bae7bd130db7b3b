# frozen_string_literal: true

module Fairlead
  class Pool
    # The waiters of a pool in the order of their arrival. {Places} and ActiveRecord's pools use it.
    #
    # A fiber waits at most once in a queue. Every method is called under the pool's lock and never blocks.
    #
    # @api private
    class WaitQueue
      def initialize
        @waiters = {}.compare_by_identity # fiber => waiter, the oldest first
      end

      def size = @waiters.size
      def empty? = @waiters.empty?

      # @return [Waiter, nil]
      def [](fiber) = @waiters[fiber]

      # @return [Array<Waiter>] the oldest first.
      def to_a = @waiters.values

      # @return [Waiter, nil]
      def oldest
        @waiters.each_value { |waiter| return waiter }
        nil
      end

      # @return [Waiter] the argument, now the last one in the queue.
      def push(waiter) = @waiters[waiter.fiber] = waiter

      # @return [Waiter, nil] nil if the fiber is not in the queue.
      def delete(fiber) = @waiters.delete(fiber)

      # Takes out the oldest waiter that can still be served.
      #
      # @return [Waiter, nil]
      def shift
        while (entry = @waiters.shift)
          return entry.last unless entry.last.gone?
        end
      end

      # Puts a waiter that could not be served back behind those that arrived before it.
      #
      # @return [Waiter] the argument.
      def restore(waiter)
        ahead = to_a.take_while { |other| other.rank < waiter.rank }
        @waiters = [*ahead, waiter].to_h { |one| [one.fiber, one] }.compare_by_identity.merge!(@waiters)
        waiter
      end
    end
  end
end
