# frozen_string_literal: true

require_relative "../log"
require_relative "session"

module Fairlead
  module Drivers
    # A connection to a MySQL or MariaDB server beside those of the pools. It is kept to end queries that nobody waits for
    # any more, and opened when there is the first. A process has one for each server and user.
    #
    # A thread of its own uses it: those that offload may all be waiting for queries.
    class SideConnection
      # Seconds for which a query is to be ended where the server refuses, and between two tries.
      LAST, PAUSE = 60, 0.1
      # There is no such connection (any more): https://mariadb.com/kb/en/e1094/
      UNKNOWN_ID = 1094
      REMEDIES = {
        true => "The server has no room: let it allow more connections (its max_connections). Each worker keeps one for " \
                "this, beyond database_connections.",
        false => "Look whether the server runs, and whether its user may connect."
      }.freeze
      LOCK = ::Thread::Mutex.new
      private_constant :LAST, :PAUSE, :UNKNOWN_ID, :REMEDIES, :LOCK

      class << self
        # @param options [Hash] of the connection whose query is to be ended.
        # @param session [Session, nil] of that connection.
        # @yield opens a connection to its server.
        # @yieldreturn [Array(#query, Session)] and its own session.
        # @return [Boolean] whether the query is over. If not, it is still tried for a while, and the log says so.
        def end_query(options, session, &open)
          of(options.values_at(:host, :port, :socket, :username), open).end_query(session)
        end

        private

        # A fork has none of its parent's.
        def of(server, open)
          LOCK.synchronize do
            @all, @process = {}, Process.pid unless @process == Process.pid
            @all[server] ||= new(server, open)
          end
        end
      end

      # @param server [Array] host, port, socket and user.
      def initialize(server, open)
        @server = server
        @open = open
        @jobs = ::Thread::Queue.new
        # Threads inherit the storage of the fiber that makes them: this one is of no request.
        Fiber.new(blocking: true, storage: {}) { ::Thread.new { work } }.resume.name = "fairlead cancel"
      end

      # @param session [Session, nil]
      # @return [Boolean] as above.
      def end_query(session)
        return tell_of_stranger(session) unless session

        ended = ::Thread::Queue.new
        @jobs.push([session, ended, Clock.now + LAST])
        ended.pop(timeout: PATIENCE) || false
      end

      private

      # What the address leads to is another server than the session's.
      Stranger = Class.new(StandardError)
      private_constant :Stranger

      def work
        while (session, ended, deadline = @jobs.pop)
          ended.push(over?(session, deadline))
        end
      end

      def over?(session, deadline)
        kept = @connection
        kill(session)
        @told = false
        true
      rescue Stranger
        @connection = nil
        kept ? retry : tell_of_stranger(session)
      rescue StandardError => error
        return true if code(error) == UNKNOWN_ID

        @connection = nil
        retry if kept # the server may have closed it long ago
        @told ||= tell(session.id, error)
        return give_up(session.id) if Clock.now > deadline

        sleep(PAUSE)
        retry
      end

      def kill(session)
        connect unless @connection
        raise Stranger unless @own && session.of?(@own, @started)

        @connection.query("KILL QUERY #{session.id}")
      end

      def connect
        @connection, @own = @open.call
        # Whole seconds: it may have started up to one earlier.
        @started = Clock.now - Session.row(@connection, "SHOW GLOBAL STATUS LIKE 'Uptime'").last.to_i
      rescue StandardError
        @connection = nil
        raise
      end

      def code(error)
        %i[error_code error_number].find { |name| error.respond_to?(name) }&.then { |name| error.public_send(name) }
      end

      def tell(id, error)
        crowded = error.message.match?(/too many|max_user_connections/i)
        Log.say("A query that nobody waits for could not be ended at #{name} (its connection #{id}): " \
                "#{error.message.strip.chomp(".")}. It goes on there, and for #{LAST} s it is tried again to end it. " \
                "#{REMEDIES.fetch(crowded)}")
        true
      end

      # @return [Boolean]
      def tell_of_stranger(session)
        unless @strange
          Log.say("A query that nobody waits for could not be ended at #{name}#{" (its connection #{session.id})" if session}: " \
                  "the address leads to another server than the one at which it runs, or to a proxy, and nobody else's query " \
                  "shall be ended. Its connection is closed here; the query may go on there. This is said once.")
          @strange = true
        end
        false
      end

      def give_up(id)
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
