# frozen_string_literal: true

module Fairlead
  module Drivers
    module Mysql2
      # What becomes of a client whose statement is interrupted. mysql2 does not show whether the server is within a
      # transaction: what is known is what was sent. A statement that can neither begin nor end a transaction, nor change the
      # session, is ended, and the client used again. After any other it is closed.
      module Interruption
        # https://mariadb.com/kb/en/e1317/
        QUERY_INTERRUPTED = 1317
        COMMENTS = %r{\A(?:\s|/\*.*?\*/|--\s.*?$|\#.*?$)*}m
        HARMLESS = /#{COMMENTS}\(?\s*(?:SELECT|INSERT|UPDATE|DELETE|REPLACE|WITH|SHOW|EXPLAIN|DESCRIBE|DESC|VALUES|TABLE|DO)\b/im
        # Of several statements in one, and locks of the session.
        UNSAFE = /;\s*\S|_LOCKS?\s*\(/i
        CONTROL = /#{COMMENTS}(?:BEGIN|START|COMMIT|ROLLBACK|XA)\b/im
        BEGINS = /#{COMMENTS}(?:BEGIN(?!\s+NOT\b)|START\s+TRANSACTION|XA\s+(?:START|BEGIN)|(?:COMMIT|ROLLBACK)\s.*\bAND\s+CHAIN\b)/im
        ENDS = /#{COMMENTS}(?:COMMIT|ROLLBACK(?!\s+(?:WORK\s+)?TO\b)|XA\s+(?:COMMIT|ROLLBACK))\b/im
        # Any statement may begin a transaction from here on.
        MANUAL = /#{COMMENTS}SET\b.*\bautocommit\b/im
        private_constant :COMMENTS, :HARMLESS, :UNSAFE, :CONTROL, :BEGINS, :ENDS, :MANUAL

        # @return [Boolean] whether it is within a transaction, as far as that is known, or a query.
        def fairlead_unsettled? = !closed? && (@fairlead_in_transaction || !@fairlead_sent.nil?)

        # @api private
        # Of a prepared statement.
        def fairlead_execute(sql, &)
          begin_statement(sql)
          interruptible { in_thread(&) }
        end

        # @api private
        # Of a result whose rows nobody wants any more, which a thread reads.
        def fairlead_stop(reader)
          Drivers.clean_up { ended? }
          @fairlead_given_up = true
          Uninterruptible.run do
            shut_down
            CLOSE.bind_call(self) if reader.join(PATIENCE)
          end
        end

        private

        def begin_statement(sql)
          raise ::Mysql2::Error::ConnectionError, "MySQL client is not connected" if @fairlead_given_up

          @fairlead_sent = sql
          @fairlead_manual ||= Drivers.sql?(sql, MANUAL)
        end

        def end_statement(result)
          sql = @fairlead_sent
          @fairlead_sent = nil
          if Drivers.sql?(sql, CONTROL)
            @fairlead_in_transaction = Drivers.sql?(sql, BEGINS) || (@fairlead_in_transaction && !Drivers.sql?(sql, ENDS))
          end
          result.fairlead_client = self if result.is_a?(::Mysql2::Result)
          result
        end

        # Of a statement whose answer is taken later.
        def sent
          yield
        rescue ::Mysql2::Error
          @fairlead_sent = nil
          raise
        end

        # Of a statement, from being sent to its result.
        def interruptible
          end_statement(yield)
        rescue ::Mysql2::Error, TypeError, EncodingError
          @fairlead_sent = nil
          raise
        rescue Exception # Async::Cancel and Timeout::ExitException among them
          end_query
          raise
        end

        # Has the server end what it is at. Without a scheduler mysql2 closes the connection by itself.
        def end_query
          return @fairlead_sent = nil unless Drivers.fibers?

          clean = false
          sql, @fairlead_sent = @fairlead_sent, nil
          Drivers.clean_up { clean = ended? && harmless?(sql) && answered? }
          give_up unless clean
        rescue Exception # another interruption
          give_up unless clean
          raise
        end

        def harmless?(sql) = !@fairlead_manual && Drivers.sql?(sql, HARMLESS) && !Drivers.sql?(sql, UNSAFE)

        def ended?
          options = @query_options.merge(@fairlead_password.call)
          SideConnection.end_query(options, @fairlead_session) { Interruption.connect(options) }
        end

        # Takes the answer to what was ended, or had ended just before. An end that comes late meets a statement of ours. Another
        # error may have ended the transaction: a deadlock does.
        def answered?
          call = @fairlead_call
          return false unless call.nil? || (call.over?(PATIENCE) && [nil, QUERY_INTERRUPTED].include?(call.error&.error_number))

          in_thread do
            interrupted? { TAKE.bind_call(self) }
            nil while interrupted? { ASK.bind_call(self, "DO 0", async: false, stream: false) }
          end
          !more_results?
        end

        def interrupted?
          yield
          false
        rescue ::Mysql2::Error => error
          error.error_number == QUERY_INTERRUPTED || raise
        end

        # Closes it, at once, or as soon as the thread that uses it has returned.
        def give_up
          call = @fairlead_call
          @fairlead_given_up = true
          Uninterruptible.run do
            CLOSE.bind_call(self) if call.nil? || call.over?(shut_down ? PATIENCE : 0) || !call.leave
          end
        end

        # @return [Boolean] false: it is not connected, or not yet.
        def shut_down
          answer_socket.shutdown
          true
        rescue SystemCallError, ::Mysql2::Error
          false
        end

        # @return [Array(Mysql2::Client, Session)]
        def self.connect(options)
          unwanted = %i[reconnect init_command async stream database]
          client = ::Mysql2::Client.new(
            # A child of this process that forgets its copy shall not say good-bye for it.
            options.except(*unwanted).merge(connect_timeout: PATIENCE, read_timeout: PATIENCE, automatic_close: false)
          )
          [client, client.fairlead_session]
        end
      end
    end
  end
end
