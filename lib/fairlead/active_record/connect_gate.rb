# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # Where callers wait to connect while the database accepts no connections, in the order in which they came. The first one
    # tries again, with growing pauses; a connection that comes back to the pool meanwhile goes to it. All give up once nobody
    # has connected for the pool's `checkout_timeout`. Each pool has one gate.
    class ConnectGate
      # Seconds between two attempts.
      PAUSES = [0.02, 0.05, 0.1, 0.2].freeze
      # How many try at the same time once one has connected.
      TOGETHER = 4
      # Seconds in which ActiveRecord may retry what has timed out here: the retry does not wait for as long again.
      RETRY = 1.0
      # Errors of a server, or of the system, that may pass by themselves: starting, stopping, too many connections.
      # MySQL's by number: https://mariadb.com/kb/en/mariadb-error-codes/
      TEMPORARY = /
        too\ many\ clients | remaining\ connection\ slots | too\ many\ connections | Connection\ (?:refused|reset)
        | the\ database\ system\ is | server\ closed\ the\ connection | No\ such\ file\ or\ directory
        | ECONNREFUSED | ECONNRESET | CLOSED_CONNECTION
      /xi
      TEMPORARY_NUMBERS = [1040, 1053, 1203, 1226, 2002, 2003, 2006, 2013].freeze
      FULL = /too many|remaining connection slots/i
      REMEDIES = {
        true => "The server has no room for more: let it allow more (its max_connections), or let all workers, and " \
                "whatever else uses it, need fewer (database_connections in config/fairlead.rb bounds all workers)",
        false => "Check that the server runs, and its log"
      }.freeze
      private_constant :PAUSES, :TOGETHER, :RETRY, :TEMPORARY, :TEMPORARY_NUMBERS, :FULL, :REMEDIES

      # The gate's own error, which no gate waits for.
      TimedOut = Class.new(::ActiveRecord::ConnectionNotEstablished)
      private_constant :TimedOut

      def initialize(pool)
        @pool = pool
        @inboxes = [] # one queue for each caller that waits; it receives an adapter with a connection, or :try
        @progressed_at = 0.0
      end

      # @return [Boolean] whether anybody waits.
      def wanted? = !@inboxes.empty?

      # @param adapter [ActiveRecord::ConnectionAdapters::AbstractAdapter] that has left its pool; the first caller takes over
      #   its connection.
      def give(adapter)
        loop do
          inbox = @inboxes.shift or return adapter.disconnect! # another thread has been faster
          return wake(1) if deliver?(inbox, adapter)
        end
      end

      # @param adapter [ActiveRecord::ConnectionAdapters::AbstractAdapter] that is to be connected.
      # @yield connects
      # @return [Object] what the block returns, or an adapter whose connection is to be taken over.
      # @raise [ActiveRecord::ActiveRecordError]
      def enter(adapter, &)
        return wait(adapter, nil, &) if wanted?

        yield
      rescue ::ActiveRecord::ActiveRecordError => error
        raise unless temporary?(error)

        wait(adapter, error, &)
      end

      private

      def wait(adapter, error, &)
        patience = @pool.checkout_timeout.to_f
        since = start_of_wait(adapter, patience)
        @inboxes.push(inbox = ::Thread::Queue.new)
        given = try_until_connected(inbox, error, since, patience, &)
      rescue TimedOut
        adapter.fairlead_waiting_since = since
        raise
      ensure
        withdraw(inbox, given)
      end

      # An interruption here would lose what this caller has been given.
      def withdraw(inbox, given)
        Uninterruptible.run { remove(inbox) }
      rescue ::Exception
        Uninterruptible.run { give(given) } if given
        raise
      end

      def start_of_wait(adapter, patience)
        now, before = Clock.now, adapter.fairlead_waiting_since
        before && now < before + patience + RETRY ? before : now
      end

      def try_until_connected(inbox, error, since, patience)
        pauses = PAUSES.each
        loop do
          take_idle(inbox) if error
          given = receive(inbox, error, pauses, deadline(since, patience))
          return record_progress(given) if given && given != :try

          time_out(error, since) if Clock.now > deadline(since, patience) && (error || @inboxes.first != inbox)
          next unless given == :try || @inboxes.first.equal?(inbox)

          return record_progress(yield).tap { wake(TOGETHER) }
        rescue ::ActiveRecord::ActiveRecordError => error
          raise unless temporary?(error)
        end
      end

      # A connection may have come back to the pool just before this caller came here: nobody would give it then.
      def take_idle(inbox)
        return unless @inboxes.first.equal?(inbox)

        Uninterruptible.run do
          adapter = @pool.fairlead_take_idle_connection
          inbox.push(adapter) if adapter
        end
      end

      def deadline(since, patience) = [since, @progressed_at].max + patience

      def record_progress(result)
        @progressed_at = Clock.now
        result
      end

      def temporary?(error)
        return false if error.is_a?(TimedOut)

        cause = error.cause || error
        number = cause.respond_to?(:error_number) ? cause.error_number : (cause.error_code if cause.respond_to?(:error_code))
        number ? TEMPORARY_NUMBERS.include?(number) : TEMPORARY.match?("#{cause.class} #{cause.message}".b)
      end

      # @return [Object, nil] what was delivered meanwhile.
      def receive(inbox, error, pauses, deadline)
        return inbox.pop(timeout: [deadline - Clock.now, 0].max) unless @inboxes.first.equal?(inbox)

        inbox.pop(timeout: error ? next_pause(pauses) : 0)
      end

      def next_pause(pauses)
        pauses.next
      rescue ::StopIteration
        PAUSES.last
      end

      # What was delivered to a caller that was interrupted goes to the next one.
      def remove(inbox)
        first = @inboxes.first.equal?(inbox)
        @inboxes.delete(inbox)
        inbox.close
        until inbox.empty?
          given = inbox.pop
          give(given) unless given == :try
        end
        wake(1) if first
      end

      # Has the first ones try now, without a pause.
      def wake(count) = @inboxes.first(count).each { |inbox| deliver?(inbox, :try) }

      # @return [Boolean] false: the caller has left, in another thread.
      def deliver?(inbox, what)
        inbox.push(what)
        true
      rescue ::ClosedQueueError
        false
      end

      def time_out(error, since)
        reason = (error&.cause || error)&.message.to_s.strip.chomp(".")
        message = format("could not connect to the database (waited %.3f seconds)%s. Pool %s: %d connections of %s. %s.",
                         Clock.now - since, reason.empty? ? "" : ": #{reason}", name,
                         @pool.connections.count(&:connected?), Limits.of(@pool), REMEDIES.fetch(reason.match?(FULL)))
        raise TimedOut.new(message, connection_pool: @pool), cause: error
      end

      def name = "#{@pool.db_config.name.inspect} (role #{@pool.role}, shard #{@pool.shard})"
    end
  end
end
