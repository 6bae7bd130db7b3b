# frozen_string_literal: true

module Fairlead
  module Drivers
    module Mysql2
      # Closes a client whose statement is interrupted: mysql2 does not show in which state the session is. The server ends the
      # statement.
      #
      # For the end of a request, it records whether the client is within a transaction, by what was sent.
      module Interruption
        include Interruptible

        COMMENTS = %r{\A(?:\s|/\*.*?\*/|--\s.*?$|\#.*?$)*}m
        CONTROL = /#{COMMENTS}(?:BEGIN|START|COMMIT|ROLLBACK|XA)\b/im
        BEGINS = /#{COMMENTS}(?:BEGIN(?!\s+NOT\b)|START\s+TRANSACTION|XA\s+(?:START|BEGIN)|(?:COMMIT|ROLLBACK)\s.*\bAND\s+CHAIN\b)/im
        ENDS = /#{COMMENTS}(?:COMMIT|ROLLBACK(?!\s+(?:WORK\s+)?TO\b)|XA\s+(?:COMMIT|ROLLBACK))\b/im
        # Errors of the driver and of arguments, after which the call has ended.
        ERRORS = [::Mysql2::Error, TypeError, EncodingError].freeze
        private_constant :COMMENTS, :CONTROL, :BEGINS, :ENDS, :ERRORS

        # @return [Boolean] whether it is within a transaction, as far as that is known, or a query.
        def fairlead_unsettled? = !closed? && (@fairlead_in_transaction || !@fairlead_sent.nil?)

        # @api private
        # For a prepared statement.
        def fairlead_execute(sql, &)
          begin_statement(sql)
          complete { in_thread(&) }
        end

        # @api private
        # Has the server end the query, and gives the client up.
        def fairlead_end_query
          Drivers.clean_up do
            # Else it is just being opened.
            QueryCanceller.end_query(::Mysql2::Client, options_with_password, @fairlead_session) if defined?(@fairlead_session)
          end
        ensure
          abandon
        end

        # @api private
        # @yield closes a statement: at once, or in the thread that uses the client, as soon as it no longer does. Not if the client is
        #   given up.
        def fairlead_close(&closing)
          (@fairlead_closings ||= ::Thread::Queue.new).push(closing) unless @fairlead_abandoned
          finish_closing
        end

        private

        # @yield in another thread, which may still use the client when nobody waits for it any more: it closes the client then.
        def in_thread
          lock = fairlead_lock # made here, once
          Fairlead.offload do
            lock.synchronize do
              check_open
              yield
            end
          ensure
            finish_closing
          end
        end

        # Closes what others could not while the caller used the client: to be called after each use.
        def finish_closing
          close_statements
          close_abandoned
        end

        def close_statements
          until @fairlead_closings.nil? || @fairlead_closings.empty? || @fairlead_abandoned
            break unless fairlead_try_alone { close_statement }
          end
        end

        def close_statement
          @fairlead_closings.pop(true).call
        rescue ::ThreadError, ::Mysql2::Error
          nil # another thread has closed it, or the connection is lost
        end

        # @return [Boolean] false: a thread uses the client.
        def fairlead_try_alone
          return false unless fairlead_lock.try_lock

          begin
            yield
          ensure
            fairlead_lock.unlock
          end
          true
        end

        def begin_statement(sql)
          check_open
          @fairlead_sent = sql
        end

        # @raise [Mysql2::Error::ConnectionError] if the client is given up: what waits for its turn is never sent.
        def check_open
          raise ::Mysql2::Error::ConnectionError, "MySQL client is not connected" if @fairlead_abandoned
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

        # Without a scheduler mysql2 closes the connection by itself.
        def call_interrupted = Drivers.fibers? ? fairlead_end_query : @fairlead_sent = nil

        # Closes it, at once, or as soon as the thread that uses it has returned.
        def abandon
          @fairlead_abandoned = true
          Uninterruptible.run do
            shut_down
            close_abandoned
          end
        end

        def shut_down
          answer_socket.shutdown
        rescue SystemCallError, ::Mysql2::Error
          nil # it is not connected, or not yet
        end

        def close_abandoned
          fairlead_try_alone { CLOSE.bind_call(self) } if @fairlead_abandoned
        end

        # Made when it is first needed: the app may have made the client before this module was prepended.
        def fairlead_lock = @fairlead_lock ||= ::Thread::Mutex.new
      end
    end
  end
end
