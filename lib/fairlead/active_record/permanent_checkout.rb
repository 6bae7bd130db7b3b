# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # `ActiveRecord::Base.connection` keeps its connection until the end of the request, also while that waits for
    # something else: with a few such requests, a pool of a few connections is used up. What works under another server
    # works here too, and is said to be costly, unless the app or its operator have said otherwise.
    module PermanentCheckout
      SETTINGS = { "allowed" => true, "deprecated" => :deprecated, "disallowed" => :disallowed }.freeze
      private_constant :SETTINGS

      class << self
        # The railtie's: whether the app has a setting of its own.
        attr_accessor :said

        # To be called by whoever serves. May be called again.
        def settle
          return unless ::ActiveRecord.respond_to?(:permanent_connection_checkout=)

          configuration = Fairlead.configuration
          if configuration && configuration.origin(:permanent_connection_checkout) != :default
            ::ActiveRecord.permanent_connection_checkout = SETTINGS.fetch(configuration.permanent_connection_checkout)
          elsif ::ActiveRecord.permanent_connection_checkout == true && !said
            ::ActiveRecord.permanent_connection_checkout = :deprecated
          end
        end
      end
    end
  end
end
