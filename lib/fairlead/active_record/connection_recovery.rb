# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # What happens to connections when the database ends them, or takes no more of them:
    #
    # - One that the server has closed is not handed out: whoever checks it out gets a new one in its place.
    # - While the server takes no connections (it restarts, or has too many already), those who need one wait at the
    #   pool's {Door}.
    module Faults
      ADAPTERS = %i[
        active_record_postgresqladapter active_record_mysql2adapter active_record_trilogyadapter
      ].freeze
      # What a server, or the system, says when the same may succeed soon: starting, stopping, too many connections.
      # MySQL's by number: https://mariadb.com/kb/en/mariadb-error-codes/
      NOT_NOW = /
        too\ many\ clients | remaining\ connection\ slots | too\ many\ connections | Connection\ (?:refused|reset)
        | the\ database\ system\ is | server\ closed\ the\ connection | No\ such\ file\ or\ directory
        | ECONNREFUSED | ECONNRESET | CLOSED_CONNECTION
      /xi
      NUMBERS = [1040, 1053, 1203, 1226, 2002, 2003, 2006, 2013].freeze
      # Seconds after an answer for which a connection is not looked at.
      AT_ONCE = 0.0005
      private_constant :ADAPTERS, :NOT_NOW, :NUMBERS, :AT_ONCE

      # @return [void]
      def self.install
        return if @installed

        @installed = true
        ADAPTERS.each { |hook| ::ActiveSupport.on_load(hook) { prepend(Adapter) } }
      end

      # @return [Boolean] whether connecting may succeed soon, though nobody does anything about it.
      def self.passing?(error)
        told = error.cause || error
        number = told.respond_to?(:error_number) ? told.error_number : (told.error_code if told.respond_to?(:error_code))
        number ? NUMBERS.include?(number) : NOT_NOW.match?("#{told.class} #{told.message}".b)
      end

      # Of the adapters.
      module Adapter
        # Called at each checkout. One that has just answered somebody else is not looked at: ActiveRecord looks at none that
        # has answered within 2 s.
        def clean!
          disconnect! if fairlead_gone?
          super
        end

        # The driver's connection, which another adapter goes on with; this one has none then.
        def fairlead_surrender
          @lock.synchronize do
            raw = @raw_connection
            @raw_connection = nil
            clear_cache!(new_connection: true)
            raw
          end
        end

        private

        # Also one that its driver has closed.
        def fairlead_gone?
          return false unless @raw_connection.respond_to?(:fairlead_lost?)

          !connected? || (fairlead_rested? && @raw_connection.fairlead_lost?)
        end

        def fairlead_rested? = @last_activity.nil? || Fairlead::Pool.clock - @last_activity > AT_ONCE

        def reconnect
          @fairlead_taken_over = false
          return super unless Drivers.fibers? && pool.respond_to?(:fairlead_door)

          given = pool.fairlead_door.enter(self) do
            super
            nil
          end
          fairlead_take_over(given) if given
        end

        # What is another adapter's becomes this one's, and what the budget knows it by. As after a new connection, it is
        # configured next.
        def fairlead_take_over(other)
          @fairlead_taken_over = true
          @raw_connection = other.fairlead_surrender
          self.fairlead_id, other.fairlead_id = other.fairlead_id, fairlead_id
          other.disconnect!
          @raw_connection.exec("DISCARD ALL") if @raw_connection.respond_to?(:transaction_status)
        end
      end
    end
  end
end
