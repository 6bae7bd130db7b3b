# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # Warns of `ActiveRecord::Base.connection`, which keeps its connection until the end of the request, even while the request
    # waits for something else: a few such requests use up a small pool. A setting of the app's or the operator's goes first.
    module PermanentCheckoutWarning
      SETTINGS = { "allowed" => true, "deprecated" => :deprecated, "disallowed" => :disallowed }.freeze
      # What the user cannot change.
      LIBRARIES = %r{/gems/|/lib/fairlead/|<internal:}
      private_constant :SETTINGS, :LIBRARIES

      # Of ActiveRecord::ConnectionHandling, where the app silences its deprecations, as most do in production. Elsewhere
      # ActiveRecord warns by itself.
      module Connection
        def connection
          PermanentCheckoutWarning.warn_once if ::ActiveRecord.permanent_connection_checkout == :deprecated &&
                                                connection_pool.permanent_lease?
          super
        end
      end

      class << self
        # Set by the railtie: whether the app has a setting of its own.
        attr_accessor :set_by_app

        # Names the line that keeps a connection, once for each.
        def warn_once
          @warned ||= {}
          frame = caller_locations(2, 1).first
          return if @warned[[frame.path, frame.lineno]]

          @warned[[frame.path, frame.lineno]] = true
          line = caller_locations(2).find { |location| !LIBRARIES.match?(location.path) } || frame
          Log.say "ActiveRecord::Base.connection is called in #{line.path}:#{line.lineno}. It keeps a database " \
            "connection until the end of the request; write with_connection { |connection| … }. (Logged once for each line.)"
        end

        # To be called before serving. May be called again.
        def apply_setting
          return unless ::ActiveRecord.respond_to?(:permanent_connection_checkout=)

          handling = ::ActiveRecord::ConnectionHandling
          handling.prepend(Connection) if ::ActiveRecord.deprecator.silenced && !handling.include?(Connection)
          configuration = Fairlead.configuration
          if configuration && configuration.origin(:permanent_connection_checkout) != :default
            ::ActiveRecord.permanent_connection_checkout = SETTINGS.fetch(configuration.permanent_connection_checkout)
          elsif ::ActiveRecord.permanent_connection_checkout == true && !set_by_app && !raises?
            ::ActiveRecord.permanent_connection_checkout = :deprecated
          end
        end

        private

        # @return [Boolean] whether a deprecation is an error for the app: what works elsewhere must work here.
        def raises? = ::ActiveRecord.deprecator.behavior.include?(::ActiveSupport::Deprecation::DEFAULT_BEHAVIORS[:raise])
      end
    end
  end
end
