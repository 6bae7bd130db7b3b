# frozen_string_literal: true

require "pg"
require_relative "../log"
require_relative "../serving/offload"
require_relative "../fiber_safety/uninterruptible"
require_relative "row_pacing"

module Fairlead
  module Drivers
    # pg waits the way fibers do. Fairlead adds three things: a thread computes keys while pg connects, large results let other
    # fibers have their turns, and the server ends queries for which nobody waits any more.
    module PostgreSQL
      # A connection. After an interrupted statement it has the transaction status of before that statement, or it is closed:
      # what ActiveRecord, or the app, knows of it stays true. So a statement that is ended within a transaction closes it:
      # PostgreSQL rolls a failed transaction back at COMMIT, without an error. A statement that changes the session may have
      # done so: its connection is closed, too.
      module Connection
        include Interruptible

        # Between two statements.
        SETTLED = [PG::PQTRANS_IDLE, PG::PQTRANS_INTRANS, PG::PQTRANS_INERROR].freeze
        # Changes that outlive a transaction: settings, and locks of the session.
        SESSION = %r{\A(?:\s|/\*.*?\*/)*(?:SET|RESET|DISCARD|LISTEN|UNLISTEN|LOAD)\b|advisory|set_config}im
        ERRORS = [PG::Error].freeze
        private_constant :SETTLED, :SESSION, :ERRORS

        # Send a statement, and wait for its end.
        %i[
          exec query async_exec exec_params async_exec_params exec_prepared async_exec_prepared prepare async_prepare
          describe_prepared describe_portal close_prepared close_portal set_client_encoding
        ].each do |name|
          next unless PG::Connection.method_defined?(name)

          define_method(name) do |*arguments, &block|
            begin_statement(name, *arguments)
            result = interruptible { super(*arguments, &nil) }
            block ? yield_result(result, &block) : result
          end
        end

        # Send a statement, and do not wait for it.
        %i[
          send_query send_query_params send_query_prepared send_prepare send_describe_prepared send_describe_portal
          send_close_prepared send_close_portal
        ].each do |name|
          next unless PG::Connection.method_defined?(name)

          define_method(name) do |*arguments|
            begin_statement(name, *arguments)
            super(*arguments)
          end
        end

        # Wait for what was sent.
        %i[get_last_result async_get_last_result block discard_results].each do |name|
          define_method(name) { |*arguments| interruptible { super(*arguments) } }
        end

        %i[get_result async_get_result].each do |name|
          define_method(name) do |&block|
            result = interruptible { super(&nil) }
            result.fairlead_connection = self if result
            result && block ? yield_result(result, &block) : result
          end
        end

        # After an error of its block, it discards the rest by itself, and waits for that.
        def copy_data(...)
          super
        rescue Exception
          settle if !finished? && transaction_status == PG::PQTRANS_ACTIVE
          raise
        end

        # SCRAM and TLS compute for milliseconds: in another thread, which ends before an interrupted connection is closed.
        def connect_poll = Drivers.compute { super }
        def reset_poll = Drivers.compute { super }

        # @return [Boolean] whether the server has closed it. Asks the server only if that has sent something unasked.
        def fairlead_lost?
          return true if finished? || status != PG::CONNECTION_OK

          lost = Drivers.lost?(socket_io)
          lost.nil? ? !answers? : lost
        end

        # @return [Boolean] whether it is within a transaction, or a statement.
        def fairlead_unsettled? = !finished? && ![PG::PQTRANS_IDLE, PG::PQTRANS_UNKNOWN].include?(transaction_status)

        # The server may take data as fast as it is made: then it never waits.
        %i[put_copy_data get_copy_data].each do |name|
          define_method(name) do |*arguments|
            (@fairlead_pacing ||= RowPacing.new).pass
            super(*arguments)
          end
        end

        # @api private
        # For a result whose rows nobody wants any more.
        def fairlead_end_query = (settle unless finished?)

        private

        # Ruby's garbage collector would close an interrupted connection, which nobody else knows yet, much later.
        def async_connect_or_reset(...)
          RequestTimes.during(RequestTimes::DATABASE) { super }
        rescue Exception
          finish unless finished?
          raise
        end

        def begin_statement(name, text = nil, sql = nil)
          @fairlead_call, @fairlead_text = name, text
          # The name of a prepared statement says nothing.
          (@fairlead_changing ||= []).push(text) if name.end_with?("prepare") && Drivers.sql?(sql, SESSION)
          status = transaction_status
          @fairlead_before = status unless status == PG::PQTRANS_ACTIVE # an earlier statement, which pg discards first
        end

        # @return [Boolean] whether the statement that was sent last may change the session.
        def session_changed?
          return false unless @fairlead_call
          return @fairlead_changing&.include?(@fairlead_text) if @fairlead_call.end_with?("prepared")

          !@fairlead_call.end_with?("prepare") && Drivers.sql?(@fairlead_text, SESSION)
        end

        def driver_errors = ERRORS

        def call_interrupted
          settle unless @fairlead_settling || finished? || (transaction_status == @fairlead_before && !session_changed?)
        end

        # Has the server end the statement, and discards what it still sends. A transaction that the statement has begun is rolled
        # back.
        #
        # The cancel request goes to the address of this connection, with a secret from its server: behind a balancer another
        # server refuses it.
        def settle
          failure = "it did not answer in #{PATIENCE} s"
          clean = false
          before, session = @fairlead_before, session_changed?
          @fairlead_settling = true
          Drivers.clean_up do
            failure = cancel || failure unless SETTLED.include?(transaction_status)
            discard_results
            exec("ROLLBACK") if before == PG::PQTRANS_IDLE && transaction_status != before
            clean = transaction_status == before && !session
          end
        ensure
          @fairlead_settling = false
          close_unsettled(failure) unless clean || finished?
        end

        def yield_result(result)
          yield result
        ensure
          result.clear
        end

        # The server may have sent a notification, or a notice.
        def answers?
          exec("")
          true
        rescue PG::Error
          false
        end

        def close_unsettled(failure)
          return if status != PG::CONNECTION_OK || SETTLED.include?(transaction_status)

          Log.say("A query that nobody waits for could not be ended at #{host}:#{port} (process #{backend_pid}): " \
                  "#{failure.strip.chomp(".")}. Fairlead closes the connection, but the query may go on there: with " \
                  "client_connection_check_interval set (PostgreSQL's configuration), the server checks by itself.")
        ensure
          finish
        end
      end

      # Goes through large results row by row, so that other fibers have their turns in between.
      module Result
        def values
          return super if ntuples < RowPacing::ROWS

          pacing = RowPacing.new
          Array.new(ntuples) do |row|
            pacing.pass
            tuple_values(row)
          end
        end

        %i[each each_row].each do |name|
          define_method(name) do |&block|
            block.nil? || ntuples < RowPacing::ROWS ? super(&block) : super(&RowPacing.paced(block))
          end
        end

        # Single row mode. pg waits in C here, so the connection does not notice an interruption.
        %i[stream_each stream_each_row stream_each_tuple].each do |name|
          define_method(name) do |*arguments, &block|
            return super(*arguments) unless block

            stream(block) { |pass| super(*arguments, &pass) }
          end
        end

        # @api private
        # @return [PG::Connection, nil] where the rows come from.
        attr_writer :fairlead_connection

        private

        # An error of the app's own block leaves the rest of the rows to pg; an interruption in the block ends the query.
        def stream(block)
          pacing = RowPacing.new
          used = false
          yield(lambda do |row|
            pacing.pass
            used = true
            block.call(row)
            used = false
          end)
        rescue Exception => error
          @fairlead_connection&.fairlead_end_query if used ? Drivers.interruption?(error) : !error.is_a?(PG::Error)
          raise
        end
      end

      PG::Connection.prepend(Connection)
      PG::Result.prepend(Result)
    end
  end
end
