# frozen_string_literal: true

require "pg"
require_relative "../log"
require_relative "../offload"
require_relative "postgresql/login"
require_relative "stream"
require_relative "turn"

module Fairlead
  module Drivers
    # pg waits the way fibers do. What is left: what it computes to connect, large results, which it goes through in C without
    # a pause, and queries that nobody waits for any more.
    module PostgreSQL
      # Queries that are sent and waited for in one call.
      module Connection
        %i[
          exec query async_exec exec_params async_exec_params exec_prepared async_exec_prepared prepare async_prepare
          describe_prepared describe_portal
        ].each do |name|
          define_method(name) do |*arguments, &block|
            super(*arguments, &block)
          rescue PG::Error
            raise
          rescue Exception # Async::Cancel and Timeout::ExitException among them
            end_query if !finished? && transaction_status == PG::PQTRANS_ACTIVE
            raise
          end
        end

        # Does not wait, but computes: a password's first key takes milliseconds (SCRAM), and so does TLS. Who is interrupted
        # leaves a connection that nobody else knows yet.
        def connect_poll
          Drivers.fibers? && Offload.free? ? Fairlead.offload { super } : super
        end

        # @return [Boolean] whether the server has closed it. Asks the server only where it has sent something unasked.
        def fairlead_lost?
          return true if finished? || status != PG::CONNECTION_OK

          lost = Drivers.lost?(socket_io)
          lost.nil? ? !answers? : lost
        end

        # Without waiting: the server takes it as fast as it is made.
        def put_copy_data(...)
          (@fairlead_turn ||= Turn.new).pass
          super
        end

        def get_copy_data(...)
          (@fairlead_turn ||= Turn.new).pass
          super
        end

        private

        # A notification, or a notice, is followed by more than the end.
        def answers?
          exec("")
          true
        rescue PG::Error
          false
        end

        # Has the server end the query, and takes what it still sends: the connection is clean then. Else it is closed.
        def end_query
          refused = "it did not answer in #{PATIENCE} s"
          clean = Drivers.clean_up do
            refused = cancel || refused
            discard_results
            [PG::PQTRANS_IDLE, PG::PQTRANS_INTRANS, PG::PQTRANS_INERROR].include?(transaction_status)
          end
        ensure
          give_up(refused) unless clean || finished?
        end

        def give_up(refused)
          Log.say("A query that nobody waits for could not be ended at #{host}:#{port} (process #{backend_pid}): " \
                  "#{refused.strip.chomp(".")}. Its connection is closed here, but the query may go on there: with " \
                  "client_connection_check_interval set (PostgreSQL's configuration), the server looks by itself.")
        ensure
          finish
        end
      end

      # Large ones are gone through row by row, and the other fibers have their turns between.
      module Result
        def values
          return super if ntuples < Turn::ROWS

          turn = Turn.new
          Array.new(ntuples) do |row|
            turn.pass
            tuple_values(row)
          end
        end

        def column_values(column)
          return super if ntuples < Turn::ROWS || !column.is_a?(Integer) || !(0...nfields).cover?(column)

          turn = Turn.new
          Array.new(ntuples) do |row|
            turn.pass
            getvalue(row, column)
          end
        end

        def field_values(name)
          return super if ntuples < Turn::ROWS

          column_values(fnumber(name.to_s))
        end

        %i[each each_row].each do |name|
          define_method(name) do |&block|
            return super(&block) if block.nil? || ntuples < Turn::ROWS

            turn = Turn.new
            super() do |row|
              turn.pass
              block.call(row)
            end
          end
        end

        # Single row mode.
        %i[stream_each stream_each_row stream_each_tuple].each do |name|
          define_method(name) do |*arguments, &block|
            return super(*arguments, &block) unless block && Drivers.fibers?

            Stream.each(->(&row) { super(*arguments, &row) }, &block)
            self
          end
        end
      end

      # A connection that is given the key of its password.
      module Keyed
        # Gives it to new ones.
        module Start
          def connect_start(*arguments)
            login = Login.of(*arguments) if arguments.first.is_a?(Hash) && !block_given?
            return super unless login

            super(login.options).tap { |connection| connection&.fairlead_login = login }
          end
        end

        def self.establish
          return unless PG::Connection.conndefaults_hash.key?(:scram_client_key) # libpq 18

          PG::Connection.prepend(self)
          PG::Connection.singleton_class.prepend(Start)
        end

        # To be called before the first connect_poll.
        attr_writer :fairlead_login

        %i[connect_poll reset_poll].each do |name|
          define_method(name) { refused? ? begin_again : super() }
        end

        private

        def reset_start2(address)
          options = self.class.conninfo_parse(address).to_h { |option| [option[:keyword].to_sym, option[:val]] }.compact
          @fairlead_login = Login.of(options)
          super(@fairlead_login ? self.class.parse_connect_args(@fairlead_login.options) : address)
        end

        def refused?
          @fairlead_login&.refused?(socket_io)
        rescue PG::Error
          false # libpq tells it better
        end

        # Without the key, which its login has forgotten.
        def begin_again
          reset_start2(self.class.parse_connect_args(@fairlead_login.options))
          PG::PGRES_POLLING_WRITING
        end
      end

      PG::Connection.prepend(Connection)
      Keyed.establish
      PG::Result.prepend(Result)
    end
  end
end
