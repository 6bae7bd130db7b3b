# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # `ActiveRecord::Base.connection` keeps its connection until the end of the request, also while that waits for
    # something else: with a few such requests, a pool of a few connections is used up. What works under another server
    # works here too, and is said to be costly, unless the app or its operator have said otherwise.
    module PermanentCheckout
      SETTINGS = { "allowed" => true, "deprecated" => :deprecated, "disallowed" => :disallowed }.freeze
      private_constant :SETTINGS

      # Of ActiveRecord::ConnectionHandling: an app in production mostly has its deprecations silenced.
      module Told
        def connection
          PermanentCheckout.tell if ::ActiveRecord.permanent_connection_checkout == :deprecated &&
                                    connection_pool.permanent_lease?
          super
        end
      end

      # Neither is what the user can change.
      LIBRARIES = %r{/gems/|/lib/fairlead/|<internal:}
      private_constant :LIBRARIES

      class << self
        # Says where a connection is kept, once for each place.
        def tell
          @told ||= {}
          frame = caller_locations(2, 1).first
          return if @told[[frame.path, frame.lineno]]

          @told[[frame.path, frame.lineno]] = true
          place = caller_locations(2).find { |location| !LIBRARIES.match?(location.path) } || frame
          Log.say "ActiveRecord::Base.connection is called in #{place.path}:#{place.lineno}. It keeps a database " \
            "connection until the end of the request; write with_connection { |connection| … } (said once for each place)."
        end

        # The railtie's: whether the app has a setting of its own.
        attr_accessor :said

        # To be called by whoever serves. May be called again.
        def settle
          return unless ::ActiveRecord.respond_to?(:permanent_connection_checkout=)

          # Where they are not, ActiveRecord names the place itself, as that of who calls it.
          ::ActiveRecord::ConnectionHandling.prepend(Told) if ::ActiveRecord.deprecator.silenced
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
