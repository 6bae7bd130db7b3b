# frozen_string_literal: true

module Fairlead
  module Drivers
    module Mysql2
      # Decides what becomes of a client whose statement is interrupted. mysql2 does not show whether the server is within a
      # transaction, so only what was sent is known. A statement that can neither begin nor end a transaction, nor change the
      # session, is ended, and the client used again. After any other the client is closed.
      module Interruption
        include Interruptible

        # https://mariadb.com/kb/en/e1317/
        QUERY_INTERRUPTED = 1317
        COMMENTS = %r{\A(?:\s|/\*.*?\*/|--\s.*?$|\#.*?$)*}m
        HARMLESS = /#{COMMENTS}\(?\s*(?:SELECT|INSERT|UPDATE|DELETE|REPLACE|WITH|SHOW|EXPLAIN|DESCRIBE|DESC|VALUES|TABLE|DO)\b/im
        # Several statements in one, and locks of the session.
        UNSAFE = /;\s*\S|_LOCKS?\s*\(/i
        CONTROL = /#{COMMENTS}(?:BEGIN|START|COMMIT|ROLLBACK|XA)\b/im
        BEGINS = /#{COMMENTS}(?:BEGIN(?!\s+NOT\b)|START\s+TRANSACTION|XA\s+(?:START|BEGIN)|(?:COMMIT|ROLLBACK)\s.*\bAND\s+CHAIN\b)/im
        ENDS = /#{COMMENTS}(?:COMMIT|ROLLBACK(?!\s+(?:WORK\s+)?TO\b)|XA\s+(?:COMMIT|ROLLBACK))\b/im
        # Any statement may begin a transaction from here on.
        MANUAL = /#{COMMENTS}SET\b.*\bautocommit\b/im
        # Of the driver, and of arguments: the call has ended.
        ERRORS = [::Mysql2::Error, TypeError, EncodingError].freeze
        private_constant :COMMENTS, :HARMLESS, :UNSAFE, :CONTROL, :BEGINS, :ENDS, :MANUAL, :ERRORS

        # @return [Boolean] whether it is within a transaction, as far as that is known, or a query.
        def fairlead_unsettled? = !closed? && (@fairlead_in_transaction || !@fairlead_sent.nil?)

        # @api private
        # For a prepared statement.
        def fairlead_execute(sql, &)
          begin_statement(sql)
          complete { in_thread(&) }
        end

        # @api private
        # For a result whose rows a thread reads, and nobody wants any more.
        def fairlead_stop(reader)
          Drivers.clean_up { ended? }
          @fairlead_abandoned = true
          Uninterruptible.run do
            shut_down
            CLOSE.bind_call(self) if reader.join(PATIENCE)
          end
        end

        private

        def begin_statement(sql)
          raise ::Mysql2::Error::ConnectionError, "MySQL client is not connected" if @fairlead_abandoned

          @fairlead_sent = sql
          @fairlead_manual ||= Drivers.sql?(sql, MANUAL)
        end

        # Runs a statement from being sent to its result.
        def complete(&)
          result = interruptible(&)
          sql = @fairlead_sent
          @fairlead_sent = nil
          if Drivers.sql?(sql, CONTROL)
            @fairlead_in_transaction = Drivers.sql?(sql, BEGINS) || (@fairlead_in_transaction && !Drivers.sql?(sql, ENDS))
          end
          result.fairlead_client = self if result.is_a?(::Mysql2::Result)
          result
        end

        # Sends a statement whose answer is taken later.
        def send_only
          yield
        rescue ::Mysql2::Error
          @fairlead_sent = nil
          raise
        end

        def driver_errors = ERRORS

        def call_failed(_) = @fairlead_sent = nil

        # Has the server end the query. Without a scheduler mysql2 closes the connection by itself.
        def call_interrupted
          return @fairlead_sent = nil unless Drivers.fibers?

          clean = false
          sql, @fairlead_sent = @fairlead_sent, nil
          Drivers.clean_up { clean = ended? && harmless?(sql) && answer_taken? }
          abandon unless clean
        rescue Exception # another interruption
          abandon unless clean
          raise
        end

        def harmless?(sql) = !@fairlead_manual && Drivers.sql?(sql, HARMLESS) && !Drivers.sql?(sql, UNSAFE)

        def ended?
          options = @query_options.merge(@fairlead_password.call)
          QueryCanceller.end_query(::Mysql2::Client, options, @fairlead_session)
        end

        # Takes the answer to the query, which may have ended by itself just before: the KILL then meets a statement of ours.
        # Another error may have ended the transaction: a deadlock does.
        def answer_taken?
          call = @fairlead_call
          return false unless call.nil? || (call.over_within?(PATIENCE) && [nil, QUERY_INTERRUPTED].include?(call.error&.error_number))

          in_thread do
            killed? { TAKE.bind_call(self) }
            nil while killed? { ASK.bind_call(self, "DO 0", async: false, stream: false) }
          end
          !more_results?
        end

        def killed?
          yield
          false
        rescue ::Mysql2::Error => error
          error.error_number == QUERY_INTERRUPTED || raise
        end

        # Closes it, at once, or as soon as the thread that uses it has returned.
        def abandon
          call = @fairlead_call
          @fairlead_abandoned = true
          Uninterruptible.run do
            CLOSE.bind_call(self) if call.nil? || call.over_within?(shut_down ? PATIENCE : 0) || !call.abandon
          end
        end

        # @return [Boolean] false: it is not connected, or not yet.
        def shut_down
          answer_socket.shutdown
          true
        rescue SystemCallError, ::Mysql2::Error
          false
        end
      end
    end
  end
end
