# frozen_string_literal: true

require "mysql2"
require "socket"
require_relative "../offload"
require_relative "mysql2/calls"
require_relative "mysql2/rows"
require_relative "side_connection"

module Fairlead
  module Drivers
    # mysql2 waits the way fibers do for the first byte of a query's answer, and for nothing else. All else is done in
    # another thread, but where the answer is known to have come as a whole. In two calls it waits with the GVL held, where
    # no thread helps: set_server_option, and a prepared statement's result that comes slowly.
    module Mysql2
      # A statement of more bytes may have to wait until the server takes it.
      LARGE = 32_768
      # https://mariadb.com/kb/en/e1317/
      QUERY_INTERRUPTED = 1317

      # Takes the answer of a query that was sent.
      TAKE = ::Mysql2::Client.instance_method(:async_result)
      NONE = {}.freeze
      ASYNC = { async: true }.freeze
      private_constant :LARGE, :TAKE, :NONE, :ASYNC

      # The client itself.
      module Client
        include Calls
        include Interruption

        offloads :ping, :select_db, :set_server_option, :close

        def initialize(options = {})
          # The driver forgets it.
          @fairlead_password = options.to_h.transform_keys(&:to_sym).slice(:password, :pass)
          super
        end

        def query(sql, options = NONE)
          return super if !Drivers.fibers? || options[:async] || @query_options[:async]
          return offloaded { super }.tap { @fairlead_ahead = nil } if sql.is_a?(String) && sql.bytesize > LARGE

          super(sql, options.empty? ? ASYNC : options.merge(ASYNC))
          async_result
        end

        def async_result
          return super unless Drivers.fibers?

          await_answer { TAKE.bind_call(self) }
          @fairlead_ahead ? super : offloaded { super }
        end

        # The driver asks for the next one with the GVL held: it is asked once there is something to read, where the
        # driver has read nothing ahead.
        def next_result
          if Drivers.fibers? && more_results? && @fairlead_ahead
            @fairlead_ahead.zero? ? await_answer { super } : @fairlead_ahead -= 1
          end
          super
        end

        def store_result
          @fairlead_ahead || !Drivers.fibers? ? super : offloaded { super }
        end

        def abandon_results!
          return super unless Drivers.fibers? && more_results?

          store_result while next_result
          nil
        end

        def prepare(sql)
          statement = Drivers.fibers? ? offloaded { super } : super
          statement.tap { |made| made.fairlead_client = self }
        end

        # @return [Boolean] whether the server has closed it, or says something unasked: why it does.
        def fairlead_lost? = closed? || Drivers.lost?(answer_socket) != false

        private

        # Nothing runs yet that the server could be told to end.
        def connect(...)
          @fairlead_socket = nil
          Drivers.fibers? ? Fairlead.offload { super } : super
        end

        # @yield takes it, if the wait is interrupted
        def await_answer
          socket = answer_socket
          raise_timeout unless socket.wait_readable(@read_timeout)
          results = MysqlAnswer.results(socket.fileno)
          @fairlead_ahead = results && (results - 1)
        rescue Exception # Async::Cancel and Timeout::ExitException among them
          end_query do
            socket.wait_readable
            take_error { yield }
          end
          raise
        end

        # The answer to a query that was ended, or had ended just before.
        def take_error
          yield
          more_results? ? false : true
        rescue ::Mysql2::Error => error
          error.error_number == QUERY_INTERRUPTED
        end

        def raise_timeout
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
        include Calls

        attr_writer :fairlead_client

        offloads :execute, :close

        private

        attr_reader :fairlead_client
      end

      ::Mysql2::Client.prepend(Client)
      ::Mysql2::Statement.prepend(Statement)
      ::Mysql2::Result.prepend(Rows)
    end
  end
end
