# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # Answers like Monitor, but belongs to the owner of a fiber: what a request has locked is not locked for its enumerators.
    class OwnerMonitor
      def initialize
        @mutex = ::Thread::Mutex.new
        @free = ::Thread::ConditionVariable.new
        @owner = nil
        @count = 0
      end

      def synchronize
        enter
        begin
          yield
        ensure
          exit
        end
      end

      private

      def enter
        owner = FiberOwner.current
        @mutex.synchronize do
          @free.wait(@mutex) until @owner.nil? || @owner.equal?(owner)
          @owner = owner
          @count += 1
        end
      end

      def exit
        Uninterruptible.run do
          @mutex.synchronize do
            next unless (@count -= 1).zero?

            @owner = nil
            @free.signal
          end
        end
      end
    end
  end
end
