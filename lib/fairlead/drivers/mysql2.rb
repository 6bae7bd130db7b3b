# frozen_string_literal: true

require "mysql2"
require "socket"
require_relative "../serving/offload"
require_relative "../fiber_safety/uninterruptible"
require_relative "query_canceller"
require_relative "row_pacing"
require_relative "mysql2/interruption"

module Fairlead
  module Drivers
    # mysql2 waits the way fibers do for the first byte of a query's answer, and for nothing else: all else runs in another
    # thread. In three calls mysql2 waits with the GVL held, where no thread helps: set_server_option, next_result, and a
    # prepared statement's result that comes slowly. A streamed result waits for its rows without the GVL.
    module Mysql2
      # A statement of more bytes may have to wait until the server takes it.
      LARGE = 32_768

      # Takes the answer to a query that was sent.
      TAKE = ::Mysql2::Client.instance_method(:async_result)
      # The driver's own, for a client that is given up.
      CLOSE = ::Mysql2::Client.instance_method(:close)
      # Changes neither a transaction nor the session.
      PREPARING = "SELECT"
      NONE = {}.freeze
      ASYNC = { async: true }.freeze
      private_constant :LARGE, :TAKE, :CLOSE, :PREPARING, :NONE, :ASYNC

      # The client itself.
      module Client
        include Interruption

        # @return [QueryCanceller::Session, nil]
        attr_reader :fairlead_session

        def initialize(options = {})
          # The driver forgets it, so that `inspect` does not show it.
          password = options.to_h.transform_keys(&:to_sym).slice(:password, :pass)
          @fairlead_password = -> { password }
          super
          session = QueryCanceller::Session.of(self)
          # Behind a proxy the server's connection may be another client's next.
          @fairlead_session = session if session&.id == thread_id
        rescue Exception # as in Interruptible
          abandon
          raise
        end

        def query(sql, options = NONE)
          begin_statement(sql)
          return send_only { super } if options[:async] || @query_options[:async]

          complete { Drivers.fibers? ? wait_and_take(sql, options) { |*arguments| super(*arguments) } : super }
        end

        def async_result
          complete do
            next super unless Drivers.fibers?

            await_answer
            in_thread { super }
          end
        end

        def store_result = Drivers.fibers? ? complete { in_thread { super } } : super

        def prepare(sql)
          return super.tap { |statement| statement.fairlead_prepared(self, sql) } unless Drivers.fibers?

          begin_statement(PREPARING)
          complete { in_thread { super } }.tap { |statement| statement.fairlead_prepared(self, sql) }
        end

        def ping
          return super if !Drivers.fibers? || closed?

          begin_statement(PREPARING)
          complete { in_thread { super } }
        end

        %i[select_db set_server_option].each do |name|
          define_method(name) do |argument|
            next super(argument) unless Drivers.fibers?

            begin_statement(name.name)
            complete { in_thread { super(argument) } }
          end
        end

        def closed? = @fairlead_abandoned || super

        # Sends a few bytes. While another fiber's thread uses the client, that thread closes it.
        def close
          return if @fairlead_abandoned

          fairlead_try_alone { Drivers.compute { super } } || abandon
          nil
        end

        # @return [Boolean] whether the server has closed it, or sends something unasked: why it does.
        def fairlead_lost? = closed? || Drivers.lost?(answer_socket) != false

        private

        # An interrupted caller leaves a connection that nobody knows: the thread closes it once it is open.
        def connect(...)
          Drivers.fibers? ? RequestTimes.during(RequestTimes::DATABASE) { in_thread { super } } : super
        end

        def options_with_password = @query_options.merge(@fairlead_password.call)

        def wait_and_take(sql, options)
          return in_thread { yield sql, options } if sql.is_a?(String) && sql.bytesize > LARGE

          yield sql, options.empty? ? ASYNC : options.merge(ASYNC)
          await_answer
          in_thread { TAKE.bind_call(self) }
        end

        def await_answer
          return if answer_socket.wait_readable(@read_timeout)

          call_interrupted
          raise ::Mysql2::Error::TimeoutError,
                "Timeout waiting for a response from the last query. (waited #{@read_timeout} seconds)"
        end

        def answer_socket
          return @fairlead_socket if @fairlead_socket&.fileno == socket

          @fairlead_socket = BasicSocket.for_fd(socket).tap { |io| io.autoclose = false }
        end
      end

      # A prepared statement.
      module Statement
        # @api private
        def fairlead_prepared(client, sql)
          @fairlead_client = client
          @fairlead_sql = sql
        end

        def execute(...)
          return super unless @fairlead_client && Drivers.fibers?

          @fairlead_client.fairlead_execute(@fairlead_sql) { super }
        end

        # Sends a few bytes, and frees what a thread may still use: the garbage collector does that for a client that is given up.
        def close
          return super unless @fairlead_client

          @fairlead_client.fairlead_close { Drivers.compute { super() } }
          nil
        end
      end

      # mysql2 makes the rows of a large result in C, one after the other: other fibers have their turns in between.
      module Result
        # @api private
        attr_writer :fairlead_client

        def each(*arguments, &block)
          return super unless block_given? && Drivers.fibers?
          return read_stream { super(*arguments, &RowPacing.paced(block)) } if stream?(*arguments)

          size < RowPacing::ROWS ? super : super(*arguments, &RowPacing.paced(block))
        end

        private

        # mysql2 cannot go on after a result that was not read to its end.
        def read_stream
          ended = false
          yield.tap { ended = true }
        ensure
          @fairlead_client&.fairlead_end_query unless ended
        end

        def stream?(options = NONE) = options.fetch(:stream) { @query_options[:stream] }
      end

      ::Mysql2::Client.prepend(Client)
      ::Mysql2::Statement.prepend(Statement)
      ::Mysql2::Result.prepend(Result)
    end
  end
end
