# frozen_string_literal: true

module Fairlead
  class Pool
    # The waiters of a pool in the order of their ranks, which is that of their arrival unless they say otherwise. {Places} and
    # ActiveRecord's pools use it.
    #
    # A fiber waits at most once in a queue. Every method is called under the pool's lock and never blocks.
    #
    # @api private
    class WaitQueue
      def initialize
        @waiters = {}.compare_by_identity # fiber => waiter
        @order = [] # the lowest rank first
      end

      def size = @order.size
      def empty? = @order.empty?

      # @return [Waiter, nil]
      def [](fiber) = @waiters[fiber]

      # @return [Array<Waiter>] the oldest first.
      def to_a = @order.dup

      # @return [Waiter, nil]
      def oldest = @order.first

      # @return [Waiter] the argument, now the last one of its rank in the queue.
      def push(waiter)
        last = @order.last
        insert(waiter, last && last.rank > waiter.rank ? @order.bsearch_index { |other| other.rank > waiter.rank } : -1)
      end

      # @return [Waiter, nil] nil if the fiber is not in the queue.
      def delete(fiber)
        waiter = @waiters[fiber] or return
        index = index_of(waiter) || @order.size
        index += 1 until index >= @order.size || @order[index].equal?(waiter)
        @order.delete_at(index)
        @waiters.delete(fiber)
      end

      # Takes out the oldest waiter that can still be served.
      #
      # @return [Waiter, nil]
      def shift
        while (waiter = @order.shift)
          @waiters.delete(waiter.fiber)
          return waiter unless waiter.gone?
        end
      end

      # Puts a waiter that could not be served back behind those that arrived before it.
      #
      # @return [Waiter] the argument.
      def restore(waiter) = insert(waiter, index_of(waiter) || -1)

      private

      def insert(waiter, index)
        @waiters[waiter.fiber] = waiter
        @order.insert(index, waiter)
        waiter
      end

      # @return [Integer, nil] of the first one whose rank is not lower.
      def index_of(waiter) = @order.bsearch_index { |other| other.rank >= waiter.rank }
    end
  end
end
