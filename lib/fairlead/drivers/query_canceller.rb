# frozen_string_literal: true

require_relative "../log"

module Fairlead
  module Drivers
    # Ends queries on a MySQL or MariaDB server for which nobody waits any more. A process has one for each server and user,
    # with a connection of its own beside those of the pools, which it opens for the first query.
    #
    # It runs in a thread of its own: all offload threads may be waiting for queries.
    class QueryCanceller
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

      # Seconds for which to retry where the server refuses, and between two tries.
      LAST, PAUSE = 60, 0.1
      # There is no such connection (any more): https://mariadb.com/kb/en/e1094/
      UNKNOWN_ID = 1094
      REMEDIES = {
        true => "The server has no room: let it allow more connections (its max_connections). Each worker keeps one for " \
                "this, beyond database_connections.",
        false => "Check that the server runs, and that its user may connect."
      }.freeze
      LOCK = ::Thread::Mutex.new
      private_constant :LAST, :PAUSE, :UNKNOWN_ID, :REMEDIES, :LOCK

      class << self
        # @param options [Hash] of the connection whose query is to be ended.
        # @param session [Session, nil] of that connection.
        # @yield opens a connection to its server.
        # @yieldreturn [Array(#query, Session)] and its own session.
        # @return [Boolean] whether the query has ended. If not, the canceller retries for a while, and the log says so.
        def end_query(options, session, &connect)
          of(options.values_at(:host, :port, :socket, :username), connect).end_query(session)
        end

        # @return [Integer, nil] the number of a driver's error.
        def code(error)
          name = %i[error_code error_number].find { |one| error.respond_to?(one) }
          error.public_send(name) if name
        end

        private

        # A fork has none of its parent's.
        def of(server, connect)
          LOCK.synchronize do
            @all, @process = {}, Process.pid unless @process == Process.pid
            @all[server] ||= new(server, connect)
          end
        end
      end

      # @param server [Array] host, port, socket and user.
      def initialize(server, connect)
        @server = server
        @connect = connect
        @jobs = ::Thread::Queue.new
        # Threads inherit the storage of the fiber that makes them: this one belongs to no request.
        Fiber.new(blocking: true, storage: {}) { ::Thread.new { work } }.resume.name = "fairlead cancel"
      end

      # @param session [Session, nil]
      # @return [Boolean] see {.end_query}
      def end_query(session)
        return refuse(session) unless session

        ended = ::Thread::Queue.new
        @jobs.push([session, ended, Clock.now + LAST])
        ended.pop(timeout: PATIENCE) || false
      end

      private

      # The address leads to another server than the session's.
      OtherServer = Class.new(StandardError)
      private_constant :OtherServer

      def work
        while (session, ended, deadline = @jobs.pop)
          ended.push(try_until(deadline, session))
        end
      end

      def try_until(deadline, session)
        kept = @connection
        kill(session)
        @reported = false
        true
      rescue OtherServer
        @connection = nil
        kept ? retry : refuse(session)
      rescue StandardError => error
        return true if QueryCanceller.code(error) == UNKNOWN_ID

        @connection = nil
        retry if kept # the server may have closed it long ago
        @reported ||= report_error(session.id, error)
        return report_failure(session.id) if Clock.now > deadline

        sleep(PAUSE)
        retry
      end

      def kill(session)
        connect unless @connection
        raise OtherServer unless @own && session.same_server?(@own, @started)

        @connection.query("KILL QUERY #{session.id}")
      end

      def connect
        @connection, @own = @connect.call
        # In whole seconds: it may have started up to one earlier.
        @started = Clock.now - Session.row(@connection, "SHOW GLOBAL STATUS LIKE 'Uptime'").last.to_i
      rescue StandardError
        @connection = nil
        raise
      end

      def report_error(id, error)
        full = error.message.match?(/too many|max_user_connections/i)
        Log.say("A query that nobody waits for could not be ended at #{name} (its connection #{id}): " \
                "#{error.message.strip.chomp(".")}. It goes on there, and for #{LAST} s Fairlead tries again to end it. " \
                "#{REMEDIES.fetch(full)}")
        true
      end

      # @return [Boolean] false
      def refuse(session)
        unless @refused
          Log.say("A query that nobody waits for could not be ended at #{name}#{" (its connection #{session.id})" if session}: " \
                  "the address leads to another server than the one that runs it, or to a proxy, and no other query must be " \
                  "ended. Fairlead closes the connection; the query may go on there. (Logged once.)")
          @refused = true
        end
        false
      end

      # @return [Boolean] false
      def report_failure(id)
        Log.say("The query of connection #{id} at #{name} could not be ended in #{LAST} s: it runs there to its end.")
        false
      end

      def name
        host, port, socket, = @server
        socket || "#{host || "localhost"}:#{port || 3306}"
      end
    end
  end
end
