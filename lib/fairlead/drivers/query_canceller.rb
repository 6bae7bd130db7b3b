# frozen_string_literal: true

require_relative "../log"
require "fairlead/pool"

module Fairlead
  module Drivers
    # Ends queries on a MySQL or MariaDB server for which nobody waits any more. A process keeps one connection for that to each
    # server and user, beside those of the pools.
    module QueryCanceller
      # What tells one of a server's connections from another, and the server from others. Ids are the same at other servers,
      # and begin anew when a server restarts.
      #
      # @!attribute id
      #   @return [Integer]
      # @!attribute server
      #   @return [String]
      # @!attribute since
      #   @return [Float] of the monotonic clock: a time at which the connection was open.
      Session = Struct.new(:id, :server, :since) do
        # @param connection [Mysql2::Client, Trilogy] that was just opened.
        # @return [Session, nil] nil where the server does not say: a proxy may know no such variables.
        def self.of(connection)
          id, server = row(connection, "SELECT CONNECTION_ID(), CONCAT_WS(' ', @@hostname, @@port, @@server_id)")
          new(id, server, Clock.now)
        rescue StandardError => error
          raise unless QueryCanceller.code(error)
        end

        # @return [Array] the first row.
        def self.row(connection, sql)
          row = connection.query(sql).first
          row.is_a?(Hash) ? row.values : row
        end

        # @param other [Session] of another connection.
        # @param started [Float] when the other's server has started, or up to a second later.
        # @return [Boolean] whether both belong to one server, which has not been restarted since.
        def same_server?(other, started) = server == other.server && started <= since + 1
      end

      # The address leads to another server than the session's.
      OtherServer = Class.new(StandardError)

      # The connection that is kept. In the child of a fork it is left to the garbage collector: the parent uses it.
      Side = Struct.new(:connection, :started) do
        # @param driver [Class]
        # @param options [Hash] of the connection whose query is to be ended.
        def self.open(driver, options)
          options = options.except(:database, :init_command, :reconnect, :async, :stream)
          # With automatic_close, a forked child says good-bye for its parent.
          patience = { connect_timeout: PATIENCE, read_timeout: PATIENCE, write_timeout: PATIENCE, automatic_close: false }
          connection = driver.new(options.merge(patience))
          # In whole seconds: it may have started up to one earlier.
          new(connection, Clock.now - Session.row(connection, "SHOW GLOBAL STATUS LIKE 'Uptime'").last.to_i)
        end

        def end_query(session)
          own = connection.fairlead_session
          raise OtherServer unless own && session.same_server?(own, started)

          connection.query("KILL QUERY #{session.id}")
        rescue StandardError => error
          raise unless QueryCanceller.code(error) == UNKNOWN_ID
        end
      end

      # There is no such connection (any more): https://mariadb.com/kb/en/e1094/
      UNKNOWN_ID = 1094
      REMEDIES = {
        true => "The server has no room: let it allow more connections (its max_connections). Each worker keeps one for " \
                "this, beyond database_connections.",
        false => "Check that the server runs, and that its user may connect."
      }.freeze
      private_constant :OtherServer, :Side, :UNKNOWN_ID, :REMEDIES

      @sides = {}
      @making = ::Thread::Mutex.new
      @refused = {}

      class << self
        # @param driver [Class] Mysql2::Client or Trilogy.
        # @param options [Hash] of the connection whose query is to be ended.
        # @param session [Session, nil] of that connection.
        # @return [Boolean] whether the query has ended. If not, the log says so.
        def end_query(driver, options, session)
          address = options.values_at(:host, :port, :socket, :username)
          return refuse(address, session) unless session

          side = @making.synchronize { @sides[[driver, address]] ||= Pool.new(size: 1, timeout: PATIENCE) { Side.open(driver, options) } }
          # All offload threads may be waiting for queries.
          ::Thread.new { try(side, session, address) }.value
        end

        # @return [Integer, nil] the number of a driver's error.
        def code(error)
          name = %i[error_code error_number].find { |one| error.respond_to?(one) }
          error.public_send(name) if name
        end

        private

        def try(side, session, address, again: true)
          side.with do |one|
            one.end_query(session)
          rescue StandardError
            side.discard_current_connection { |lost| lost.connection.close }
            raise
          end
          true
        rescue StandardError => error
          # The server may have closed the connection long ago.
          return try(side, session, address, again: false) if again

          error.is_a?(OtherServer) ? refuse(address, session) : report_failure(address, session, error)
        end

        # @return [Boolean] false
        def report_failure(address, session, error)
          full = error.message.match?(/too many|max_user_connections/i)
          Log.say("A query that nobody waits for could not be ended at #{name(address)} (its connection #{session.id}): " \
                  "#{error.message.strip.chomp(".")}. Fairlead closes the connection; the query may go on there. #{REMEDIES.fetch(full)}")
          false
        end

        # @return [Boolean] false
        def refuse(address, session)
          unless @refused[address]
            Log.say("A query that nobody waits for could not be ended at #{name(address)}" \
                    "#{" (its connection #{session.id})" if session}: the address leads to another server than the one that runs " \
                    "it, or to a proxy, and no other query must be ended. Fairlead closes the connection; the query may go on " \
                    "there. (Logged once.)")
            @refused[address] = true
          end
          false
        end

        def name((host, port, socket, _))
          socket || "#{host || "localhost"}:#{port || 3306}"
        end
      end
    end
  end
end
