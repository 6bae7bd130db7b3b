# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # Of ConnectionPool::Queue, where ActiveRecord keeps its own pools. A waiter that is interrupted after it was signalled passes the
    # signal on, since the connection is still there.
    module OwnQueue
      private

      # Under the lock.
      def wait_poll(timeout)
        connection = super
      ensure
        @cond.signal if connection.nil? && any?
      end
    end
  end
end
