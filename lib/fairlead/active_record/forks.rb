# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # A database connection must not be used by two processes.
    module Forks
      # To be called before a fork: closes what the app has opened while it was loaded. Each worker opens its own.
      #
      # @return [void]
      def self.release
        return unless ActiveRecord.loaded?

        handler = ::ActiveRecord::Base.connection_handler
        if ::ActiveRecord.version >= Gem::Version.new("7.1")
          handler.clear_all_connections!(:all)
        else
          handler.all_connection_pools.each(&:disconnect!)
        end
      end
    end
  end
end
