# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # Extends the adapter classes of pooled connections:
    #
    # - A checkout replaces a connection that the server has closed.
    # - While the server accepts no connections, those who need one wait at the pool's {ConnectGate}.
    # - The {WorkerBudget} learns which connections are opened and closed.
    module AdapterPatch
      # @param adapter_class [Class] of a pool's connection.
      def self.apply(adapter_class)
        adapter_class.prepend(self) unless adapter_class.include?(self)
      end

      # Called at each checkout.
      def clean!
        disconnect! if fairlead_lost?
        super
      end

      def disconnect!
        super
      ensure
        fairlead_report_closed
      end

      # Its room in the budget is free again once it is closed and has left its pool.
      def fairlead_report_closed
        return if fairlead_budget_id.nil? || connected?

        Uninterruptible.run do
          next fairlead_budget&.shut(fairlead_budget_id) if pool.fairlead_has?(self)

          fairlead_budget&.free(fairlead_budget_id)
          self.fairlead_budget_id = nil
        end
      end

      # @return [Object] the driver's connection, for another adapter to use; this one has none then.
      def fairlead_detach
        @lock.synchronize do
          raw = @raw_connection
          @raw_connection = nil
          clear_cache!(new_connection: true)
          raw
        end
      end

      private

      # Whether the server, or the driver, has closed it.
      def fairlead_lost? = @raw_connection.respond_to?(:fairlead_lost?) && (!connected? || @raw_connection.fairlead_lost?)

      def reconnect
        # A connection to the server that is no more is replaced without being disconnected.
        fairlead_budget&.shut(fairlead_budget_id) if @raw_connection
        given = fairlead_at_gate { super }
        given ? fairlead_attach(given) : fairlead_budget&.opened(fairlead_budget_id, fairlead_socket)
      end

      # @return [AbstractAdapter, nil] whose connection this one gets, if it did not connect itself.
      def fairlead_at_gate
        if Drivers.fibers? && pool.respond_to?(:fairlead_gate)
          pool.fairlead_gate.enter(self) do
            yield
            nil
          end
        else
          yield
          nil
        end
      end

      # Takes over another adapter's connection, and its number in the budget. ActiveRecord configures it as a new one.
      def fairlead_attach(other)
        @raw_connection = other.fairlead_detach
        self.fairlead_budget_id, other.fairlead_budget_id = other.fairlead_budget_id, fairlead_budget_id
        other.disconnect!
        @raw_connection.exec("DISCARD ALL") if @raw_connection.respond_to?(:transaction_status)
      end

      def fairlead_budget = (pool.fairlead_budget if fairlead_budget_id)

      def fairlead_socket
        if @raw_connection.respond_to?(:fairlead_socket) then @raw_connection.fairlead_socket
        elsif @raw_connection.respond_to?(:socket_io) then @raw_connection.socket_io
        elsif @raw_connection.respond_to?(:socket) then ::IO.for_fd(@raw_connection.socket, autoclose: false)
        end
      rescue ::StandardError
        nil
      end
    end
  end
end
