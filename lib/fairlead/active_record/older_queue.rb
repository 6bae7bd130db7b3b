# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # Of ConnectionPool::Queue before 8.1. Who is called to take a connection, and is interrupted before it does, leaves it to
    # the next one: else those who wait would wait beside it, and who comes would join them.
    module OlderQueue
      private

      # Under the lock.
      def wait_poll(timeout)
        taken = super
      ensure
        @cond.signal if taken.nil? && any?
      end
    end
  end
end
