# frozen_string_literal: true

module Fairlead
  module Drivers
    # By what a MySQL or MariaDB server knows a connection, and by what that server is known. Ids are the same at other
    # servers, and begin anew when one restarts.
    #
    # @!attribute id
    #   @return [Integer]
    # @!attribute server
    #   @return [String]
    # @!attribute since
    #   @return [Float] of the monotonic clock: when it was there.
    Session = Struct.new(:id, :server, :since) do
      # @param connection [Mysql2::Client, Trilogy] that was just opened.
      # @return [Session, nil] nil where the server does not say: a proxy may know no such variables.
      def self.of(connection)
        id, server = row(connection, "SELECT CONNECTION_ID(), CONCAT_WS(' ', @@hostname, @@port, @@server_id)")
        new(id, server, Clock.now)
      rescue StandardError => error
        raise unless [:error_number, :error_code].any? { |number| error.respond_to?(number) && error.public_send(number) }
      end

      # @return [Array] the first row.
      def self.row(connection, sql)
        row = connection.query(sql).first
        row.is_a?(Hash) ? row.values : row
      end

      # @param other [Session] of another connection.
      # @param started [Float] when the server of that has started, a second later at most.
      # @return [Boolean] whether both are of one server, which has not been restarted meanwhile.
      def of?(other, started) = server == other.server && started <= since + 1
    end
  end
end
