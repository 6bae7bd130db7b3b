# frozen_string_literal: true

require "mysql2"
require "socket"
require_relative "../serving/offload"
require_relative "../fiber_safety/uninterruptible"
require_relative "mysql2/blocking_calls"
require_relative "mysql2/interruption"
require_relative "mysql2/rows"
require_relative "query_canceller"

module Fairlead
  module Drivers
    # mysql2 waits the way fibers do for the first byte of a query's answer, and for nothing else. All else is done in another
    # thread. In three calls mysql2 waits with the GVL held, where no thread helps: set_server_option, next_result, and a
    # prepared statement's result that comes slowly.
    module Mysql2
      # A statement of more bytes may have to wait until the server takes it.
      LARGE = 32_768

      # Takes the answer of a query that was sent.
      TAKE = ::Mysql2::Client.instance_method(:async_result)
      # The driver's own, also while it is being given up.
      ASK = ::Mysql2::Client.instance_method(:query)
      CLOSE = ::Mysql2::Client.instance_method(:close)
      # Changes neither a transaction nor the session.
      PREPARING = "SELECT"
      NONE = {}.freeze
      ASYNC = { async: true }.freeze
      private_constant :LARGE, :TAKE, :ASK, :CLOSE, :PREPARING, :NONE, :ASYNC

      # The client itself.
      module Client
        include Calls
        include Interruption

        # @return [Session, nil]
        attr_reader :fairlead_session

        def initialize(options = {})
          # The driver forgets it, so that `inspect` does not show it.
          password = options.to_h.transform_keys(&:to_sym).slice(:password, :pass)
          @fairlead_password = -> { password }
          super
          session = Session.of(self)
          # Behind a proxy it may be another one's next.
          @fairlead_session = session if session&.id == thread_id
        rescue Exception # Async::Cancel and Timeout::ExitException among them
          give_up
          raise
        end

        def query(sql, options = NONE)
          begin_statement(sql)
          return sent { super } if options[:async] || @query_options[:async]

          interruptible { Drivers.fibers? ? wait_and_take(sql, options) { |*arguments| super(*arguments) } : super }
        end

        def async_result
          interruptible do
            next super unless Drivers.fibers?

            await_answer
            in_thread { super }
          end
        end

        def store_result = Drivers.fibers? ? interruptible { in_thread { super } } : super

        def prepare(sql)
          return super.tap { |statement| statement.fairlead_prepared(self, sql) } unless Drivers.fibers?

          begin_statement(PREPARING)
          interruptible { in_thread { super } }.tap { |statement| statement.fairlead_prepared(self, sql) }
        end

        def ping
          return super if !Drivers.fibers? || closed?

          begin_statement(PREPARING)
          interruptible { in_thread { super } }
        end

        %i[select_db set_server_option].each do |name|
          define_method(name) do |argument|
            next super(argument) unless Drivers.fibers?

            begin_statement(name.name)
            interruptible { in_thread { super(argument) } }
          end
        end

        def closed? = @fairlead_given_up || super

        # Says good-bye, which takes no time to speak of: it is done where it is while all threads are busy.
        def close
          return if @fairlead_given_up

          Drivers.fibers? && Offload.free? ? Uninterruptible.run { Fairlead.offload { super } } : super
        end

        # @return [Boolean] whether the server has closed it, or says something unasked: why it does.
        def fairlead_lost? = closed? || Drivers.lost?(answer_socket) != false

        private

        # Whoever is interrupted leaves a connection that nobody knows. The thread closes it once it is open.
        def connect(...)
          return super unless Drivers.fibers?

          in_thread { super }
        end

        def wait_and_take(sql, options)
          return in_thread { yield sql, options } if sql.is_a?(String) && sql.bytesize > LARGE

          yield sql, options.empty? ? ASYNC : options.merge(ASYNC)
          await_answer
          in_thread { TAKE.bind_call(self) }
        end

        def await_answer
          return if answer_socket.wait_readable(@read_timeout)

          end_query
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

        # Sends a few bytes, and waits for nothing.
        def close = @fairlead_client && Drivers.fibers? && Offload.free? ? Uninterruptible.run { Fairlead.offload { super } } : super
      end

      ::Mysql2::Client.prepend(Client)
      ::Mysql2::Statement.prepend(Statement)
      ::Mysql2::Result.prepend(Rows)
    end
  end
end
