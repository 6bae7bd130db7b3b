# frozen_string_literal: true

require "trilogy"
require_relative "query_canceller"

module Fairlead
  module Drivers
    # trilogy waits the way fibers do, and closes its connection when a query is interrupted. Fairlead has the server end that
    # query, which would go on there.
    module Trilogy
      # The client itself.
      module Client
        include Interruptible

        # Errors of the driver and of arguments, after which the call has ended.
        ERRORS = [::Trilogy::Error, TypeError, EncodingError].freeze
        private_constant :ERRORS

        # @return [BasicSocket, nil] a copy of the driver's own socket, which it does not show; nil before 2.11.
        attr_reader :fairlead_socket
        # @return [QueryCanceller::Session, nil]
        attr_reader :fairlead_session

        def initialize(options = {})
          RequestTimes.during(RequestTimes::DATABASE) { super }
          session = QueryCanceller::Session.of(self)
          # A proxy answers this one by itself: it may give the server's connection to another client next.
          own = session && session.id == QueryCanceller::Session.row(self, "SELECT CONNECTION_ID()").first
          @fairlead_session = own ? session : nil
        end

        # @return [Boolean] whether it is within a transaction.
        def fairlead_unsettled? = !closed? && server_status.anybits?(::Trilogy::SERVER_STATUS_IN_TRANS)

        # @return [Boolean] whether the server has closed it, or sends something unasked: why it does.
        def fairlead_lost? = closed? || (!@fairlead_socket.nil? && Drivers.lost?(@fairlead_socket) != false)

        %i[close discard!].each do |name|
          define_method(name) do
            super()
          ensure
            @fairlead_socket&.close if closed? # another fiber may use it: then trilogy refuses
          end
        end

        %i[query next_result ping change_db select_db set_server_option abandon_results!].each do |name|
          next unless ::Trilogy.method_defined?(name)

          define_method(name) { |*arguments| interruptible { super(*arguments) } }
        end

        private

        # The driver has a descriptor of its own, and closes the one that was connected. (Before 2.11 it connects in C.)
        #
        # The selector still watches that one, until this fiber waits again. Once it is closed, nothing could end the watch
        # while the driver's is open: each wait of the reactor would return at once.
        def _connect(socket, ...)
          return super unless socket.is_a?(::BasicSocket)

          Fiber.scheduler.yield if Drivers.fibers?
          @fairlead_socket = socket.dup
          super
        rescue Exception # as in Interruptible
          @fairlead_socket&.close
          raise
        end

        def driver_errors = ERRORS

        def call_failed(error) = (call_interrupted if error.is_a?(::Trilogy::TimeoutError))

        # The driver has closed its descriptor; the selector notices only once the copy is closed, too.
        def call_interrupted
          @fairlead_socket&.close
          Drivers.clean_up do
            # Else the driver still connects.
            QueryCanceller.end_query(::Trilogy, connection_options, @fairlead_session) if defined?(@fairlead_session)
          end
        ensure
          discard! unless closed?
        end
      end

      ::Trilogy.prepend(Client)
    end
  end
end
