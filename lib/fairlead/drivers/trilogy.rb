# frozen_string_literal: true

require "trilogy"
require_relative "query_canceller"

module Fairlead
  module Drivers
    # trilogy waits the way fibers do, and closes its connection when a query is interrupted. The server would go on with
    # that query: it is told to end it.
    module Trilogy
      # The client itself.
      module Client
        # @return [BasicSocket, nil] a copy of the driver's own, which it shows to nobody; nil before 2.11.
        attr_reader :fairlead_socket
        # @return [Session, nil]
        attr_reader :fairlead_session

        def initialize(options = {})
          super
          session = Session.of(self)
          # A proxy answers this one by itself: it may give the server's connection to another client next.
          @fairlead_session = session && session.id == Session.row(self, "SELECT CONNECTION_ID()").first ? session : nil
        end

        # @return [Boolean] whether it is within a transaction.
        def fairlead_unsettled? = !closed? && server_status.anybits?(::Trilogy::SERVER_STATUS_IN_TRANS)

        # @return [Boolean] whether the server has closed it, or says something unasked: why it does.
        def fairlead_lost? = closed? || (!@fairlead_socket.nil? && Drivers.lost?(@fairlead_socket) != false)

        %i[close discard!].each do |name|
          define_method(name) do
            super()
          ensure
            @fairlead_socket&.close
          end
        end

        %i[query next_result ping change_db select_db set_server_option abandon_results!].each do |name|
          next unless ::Trilogy.method_defined?(name)

          define_method(name) do |*arguments|
            super(*arguments)
          rescue ::Trilogy::TimeoutError
            end_query
            raise
          rescue ::Trilogy::Error, TypeError, EncodingError
            raise
          rescue Exception # Async::Cancel and Timeout::ExitException among them
            end_query
            raise
          end
        end

        private

        # The driver has a descriptor of its own, and closes the one that was connected. (Before 2.11 it connects in C.)
        #
        # The selector that was waited in still watches that one, until this fiber waits again. Once it is closed, nobody
        # could end that while the driver's is open: each wait of the reactor would return at once.
        def _connect(socket, ...)
          return super unless socket.is_a?(::BasicSocket)

          Fiber.scheduler.yield if Drivers.fibers?
          @fairlead_socket = socket.dup
          super
        rescue Exception # as above
          @fairlead_socket&.close
          raise
        end

        # The driver has closed its descriptor, of which the selector hears only once there is no copy of it either.
        def end_query
          @fairlead_socket&.close
          Drivers.clean_up do
            next unless defined?(@fairlead_session) # it still asks for that

            options = connection_options
            SideConnection.end_query(options, @fairlead_session) do
              patience = { connect_timeout: PATIENCE, read_timeout: PATIENCE, write_timeout: PATIENCE }
              other = ::Trilogy.new(options.except(:database).merge(patience))
              [other, other.fairlead_session]
            end
          end
        ensure
          discard! unless closed?
        end
      end

      ::Trilogy.prepend(Client)
    end
  end
end
