# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # A database connection must not be used by two processes.
    module Forks
      # To be called before a fork: closes what the app has opened while it was loaded. Each worker opens its own. What another
      # thread of the app uses now stays open; ActiveRecord drops the copy in the child.
      #
      # @return [void]
      def self.release
        return unless ActiveRecord.loaded?

        ::ActiveRecord::Base.connection_handler.connection_pool_list(:all).each do |pool|
          pool.connections.any? { |connection| used_elsewhere?(connection) } ? pool.flush! : pool.disconnect!
        end
      end

      def self.used_elsewhere?(connection)
        owner = connection.owner
        owner&.alive? && ![Thread.current, Fiber.current].include?(owner)
      end
      private_class_method :used_elsewhere?
    end
  end
end
