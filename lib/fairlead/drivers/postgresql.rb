# frozen_string_literal: true

require "pg"
require_relative "../log"
require_relative "../serving/offload"
require_relative "../fiber_safety/uninterruptible"
require_relative "row_turn"

module Fairlead
  module Drivers
    # pg waits the way fibers do. What is left: what it computes to connect, large results, which it goes through in C without
    # a pause, and queries that nobody waits for any more.
    module PostgreSQL
      # A connection. After an interrupted statement its transaction status is what it was before that statement, or it is
      # closed: what ActiveRecord, or the app, knows of it stays true. Only a statement within a transaction leaves it failed,
      # as any error does. One that changes the session may have done so, and closes it, too.
      module Connection
        # Between two statements.
        SETTLED = [PG::PQTRANS_IDLE, PG::PQTRANS_INTRANS, PG::PQTRANS_INERROR].freeze
        ROLLBACK = %r{\A(?:\s|/\*.*?\*/)*(?:ROLLBACK|ABORT)\b}im
        # What outlives a statement beside transactions: settings, and locks of the session.
        SESSION = %r{\A(?:\s|/\*.*?\*/)*(?:SET|RESET|DISCARD|LISTEN|UNLISTEN|LOAD)\b|advisory|set_config}im
        private_constant :SETTLED, :ROLLBACK, :SESSION

        # Those that send a statement, and wait for its end.
        %i[
          exec query async_exec exec_params async_exec_params exec_prepared async_exec_prepared prepare async_prepare
          describe_prepared describe_portal close_prepared close_portal set_client_encoding
        ].each do |name|
          next unless PG::Connection.method_defined?(name)

          define_method(name) do |*arguments, &block|
            begin_statement(name, *arguments)
            result = settled { super(*arguments, &nil) }
            check_commit(arguments.first, result) if @fairlead_failed
            block ? yield_result(result, &block) : result
          end
        end

        # Those that send one, and do not wait for it.
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

        # Those that wait for what was sent.
        %i[get_last_result async_get_last_result block discard_results].each do |name|
          define_method(name) { |*arguments| settled { super(*arguments) } }
        end

        %i[get_result async_get_result].each do |name|
          define_method(name) do |&block|
            result = settled { super(&nil) }
            result.fairlead_connection = self if result
            result && block ? yield_result(result, &block) : result
          end
        end

        # It clears up itself after an error of its block, waiting again.
        def copy_data(...)
          super
        rescue Exception
          settle if !finished? && transaction_status == PG::PQTRANS_ACTIVE
          raise
        end

        # A password's key takes milliseconds to compute (SCRAM), and so does TLS: another thread does. It must be done before
        # an interrupted connection is closed.
        def connect_poll = polled { super }
        def reset_poll = polled { super }

        # @return [Boolean] whether the server has closed it. Asks the server only where it has sent something unasked.
        def fairlead_lost?
          return true if finished? || status != PG::CONNECTION_OK

          lost = Drivers.lost?(socket_io)
          lost.nil? ? !answers? : lost
        end

        # @return [Boolean] whether it is within a transaction, or a statement.
        def fairlead_unsettled? = !finished? && ![PG::PQTRANS_IDLE, PG::PQTRANS_UNKNOWN].include?(transaction_status)

        # Without waiting: the server takes it as fast as it is made.
        def put_copy_data(...)
          (@fairlead_turn ||= Turn.new).pass
          super
        end

        def get_copy_data(...)
          (@fairlead_turn ||= Turn.new).pass
          super
        end

        # @api private
        # Of a result whose rows nobody wants any more.
        def fairlead_end_query = (settle unless finished?)

        private

        def polled(&) = Drivers.fibers? && Offload.free? ? Uninterruptible.run { Fairlead.offload(&) } : yield

        # Nobody else knows an interrupted connection yet. Ruby's garbage collector may close it much later.
        def async_connect_or_reset(...)
          super
        rescue Exception
          finish unless finished?
          raise
        end

        def begin_statement(name, text = nil, sql = nil)
          @fairlead_call, @fairlead_text = name, text
          # ActiveRecord's names of prepared statements say nothing.
          (@fairlead_changing ||= []).push(text) if name.end_with?("prepare") && Drivers.sql?(sql, SESSION)
          status = transaction_status
          return if status == PG::PQTRANS_ACTIVE # of an earlier one, which pg discards first

          @fairlead_before = status
          @fairlead_failed &&= status == PG::PQTRANS_INERROR
        end

        # @return [Boolean] whether the statement that was sent last may change the session.
        def session_changed?
          return false unless @fairlead_call
          return @fairlead_changing&.include?(@fairlead_text) if @fairlead_call.end_with?("prepared")

          !@fairlead_call.end_with?("prepare") && Drivers.sql?(@fairlead_text, SESSION)
        end

        def settled
          yield
        rescue PG::Error
          raise
        rescue Exception # Async::Cancel and Timeout::ExitException among them
          settle unless @fairlead_settling || finished? || (transaction_status == @fairlead_before && !session_changed?)
          raise
        end

        # Has the server end the statement, and takes what it still sends. Who had not begun a transaction is in none then.
        #
        # The cancel request goes to the address of this very connection, with a secret that its server has given it: behind a
        # balancer another server refuses it.
        def settle
          refused = "it did not answer in #{PATIENCE} s"
          clean = false
          before, session = @fairlead_before, session_changed?
          @fairlead_settling = true
          Drivers.clean_up do
            refused = cancel || refused unless SETTLED.include?(transaction_status)
            discard_results
            exec("ROLLBACK") if before == PG::PQTRANS_IDLE && transaction_status != before
            clean = as_before?(before) && !session
          end
        ensure
          @fairlead_settling = false
          give_up(refused) unless clean || finished?
        end

        def as_before?(before)
          return true if transaction_status == before

          @fairlead_failed = before == PG::PQTRANS_INTRANS && transaction_status == PG::PQTRANS_INERROR
        end

        # PostgreSQL answers the COMMIT of a failed transaction by rolling it back, which is no error. Whoever has rescued the
        # interruption of a statement would take it for committed.
        def check_commit(sql, result)
          return if transaction_status != PG::PQTRANS_IDLE

          @fairlead_failed = false
          return if Drivers.sql?(sql, ROLLBACK) || !result.is_a?(PG::Result) || result.cmd_status != "ROLLBACK"

          raise PG::InFailedSqlTransaction, "the transaction is rolled back: one of its statements was interrupted"
        end

        def yield_result(result)
          yield result
        ensure
          result.clear
        end

        # A notification, or a notice, is followed by more than the end.
        def answers?
          exec("")
          true
        rescue PG::Error
          false
        end

        def give_up(refused)
          return if status != PG::CONNECTION_OK || SETTLED.include?(transaction_status)

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

        # Single row mode. pg waits in C here, so that the connection cannot see an interruption.
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

        # An error of the app's own block leaves the rest of the rows where pg leaves it; an interruption there ends the query.
        def stream(block)
          turn = Turn.new
          used = false
          yield(lambda do |row|
            turn.pass
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
