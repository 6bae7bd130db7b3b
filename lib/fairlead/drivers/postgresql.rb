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
      # A connection. The server ends an interrupted statement, and the connection is closed: nobody knows whether the statement
      # was done, and what it has changed. What ActiveRecord, or the app, does with it then fails: PostgreSQL would roll a failed
      # transaction back at COMMIT, without an error.
      module Connection
        include Interruptible

        # Nothing was sent, or all was answered: the call has ended, with an error of its arguments, for one.
        AT_REST = [StandardError].freeze
        # Errors of the driver and of arguments, after which the call has ended.
        ERRORS = [PG::Error, ArgumentError, TypeError, EncodingError].freeze
        private_constant :AT_REST, :ERRORS

        # These have a connection of their own, do not wait, or are below.
        OTHERS = %w[cancel reset isnonblocking setnonblocking get_copy_data put_copy_data].freeze
        # What sends something to the server, and what waits for its answer. (`internal_encoding=` and `lo_*` wait within libpq.)
        WAITING = [
          *PG::Connection.instance_methods(false).filter_map { |name| name.name[/\Aasync_(.*)/, 1] }.-(OTHERS)
                         .flat_map { |name| [name.to_sym, :"async_#{name}"] },
          :query, :block, :discard_results, :client_encoding=, :set_default_encoding
        ].uniq.freeze
        private_constant :OTHERS, :WAITING

        WAITING.each do |name|
          streams = name.end_with?("get_result")
          define_method(name) do |*arguments, &block|
            result = interruptible { super(*arguments, &nil) }
            result.fairlead_connection = self if streams && result
            block && result.is_a?(PG::Result) ? yield_result(result, &block) : result
          end
        end

        # pg cleans up after what its block raises, which fails once an interruption has closed the connection.
        def transaction(...) = raising_interruption { super }

        # An interruption in the block is one of the statement.
        def copy_data(*arguments)
          raising_interruption { super { |result| ending_if_interrupted { yield result } } }
        end

        # They wait until the server takes what they send. Other errors are those of arguments.
        PG::Connection.instance_methods(false).grep(/\Asend_/).each do |name|
          define_method(name) { |*arguments| ending_if_interrupted { super(*arguments) } }
        end

        # @return [Integer] what libpq says of a connection that is lost; pg raises an error once it is closed, also where
        #   ActiveRecord asks within its clean-up.
        def transaction_status = finished? ? PG::PQTRANS_UNKNOWN : super

        # Whoever has opened the connection closes it once more, in an `ensure` for example.
        def finish = (super unless @fairlead_ended && finished?)
        def close = finish

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
        def fairlead_unsettled? = ![PG::PQTRANS_IDLE, PG::PQTRANS_UNKNOWN].include?(transaction_status)

        # The server may take data as fast as it is made: then it never waits.
        %i[put_copy_data async_put_copy_data get_copy_data async_get_copy_data].each do |name|
          define_method(name) do |*arguments|
            ending_if_interrupted do
              (@fairlead_pacing ||= RowPacing.new).pass
              super(*arguments)
            end
          end
        end

        # @api private
        # Has the server end the statement, and closes the connection.
        #
        # The cancel request goes to the address of this connection, with a secret from its server: behind a balancer another
        # server refuses it.
        def fairlead_end_query
          failure = "no answer in #{PATIENCE} s"
          Drivers.clean_up { failure = cancel } if active?
          report_failure(failure) if active? && failure
        ensure
          @fairlead_ended = true
          finish
        end

        private

        # Ruby's garbage collector would close an interrupted connection, which nobody else knows yet, much later.
        def async_connect_or_reset(...)
          RequestTimes.during(RequestTimes::DATABASE) { super }
        rescue Exception
          finish unless finished?
          raise
        end

        def active? = transaction_status == PG::PQTRANS_ACTIVE

        def driver_errors = active? ? ERRORS : AT_REST

        def call_interrupted = fairlead_end_query

        def ending_if_interrupted
          yield
        rescue Exception => error
          fairlead_end_query if Drivers.interruption?(error)
          raise
        end

        # @raise [Exception] instead of an error about the closed connection, what was raised before it.
        def raising_interruption
          handled = $!
          yield
        rescue PG::Error => error
          raised = error.cause if finished?
          raise(raised.nil? || raised.equal?(handled) ? error : raised)
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

        def report_failure(failure)
          Log.say("A query that nobody waits for could not be ended at #{host}:#{port} (process #{backend_pid}): " \
                  "#{failure.strip.chomp(".")}. Fairlead closes the connection, but the query may go on there: with " \
                  "client_connection_check_interval set (PostgreSQL's configuration), the server checks by itself.")
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
