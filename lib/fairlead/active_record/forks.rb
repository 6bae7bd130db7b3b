# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # A database connection must not be used by two processes.
    module Forks
      # To be called before a fork: closes what the app has opened while it was loaded. Each worker opens its own.
      #
      # @return [void]
      def self.release
        ::ActiveRecord::Base.connection_handler.clear_all_connections!(:all) if ActiveRecord.loaded?
      end
    end
  end
end
