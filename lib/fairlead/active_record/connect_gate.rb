# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # Where those who want to connect wait while the database takes nobody: in the order they came, until none of them has
    # got in for as long as a pool's line may stand still ({WaitQueue}). The first of them tries again, with growing pauses; a
    # connection that comes back to the pool meanwhile is theirs. One for each pool.
    class Door
      # Seconds between two tries.
      PAUSES = [0.02, 0.05, 0.1, 0.2].freeze
      # Once one has got in, so many try at the same time.
      TOGETHER = 4
      # ActiveRecord tries again after having waited in vain: it shall not wait as long again.
      AGAIN = 1.0
      REMEDIES = {
        true => "The server has no room for more: let it allow more (its max_connections), or let all workers, and " \
                "whatever else uses it, need fewer (database_connections in config/fairlead.rb bounds all workers)",
        false => "Look whether the server runs, and at its log"
      }.freeze
      private_constant :PAUSES, :TOGETHER, :AGAIN, :REMEDIES

      def initialize(pool)
        @pool = pool
        @waiting = [] # a queue for each: what it is given is an adapter with a connection, or :first
        @moved_at = 0.0
      end

      # @return [Boolean]
      def wanted? = !@waiting.empty?

      # @param adapter [ActiveRecord::ConnectionAdapters::AbstractAdapter] that has left its pool; whoever waits longest
      #   takes its connection over.
      def give(adapter)
        loop do
          place = @waiting.shift or return adapter.disconnect! # another thread has been faster
          return call(1) if pushed?(place, adapter)
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
        raise unless passing?(error)

        wait(adapter, error, &)
      end

      private

      def wait(adapter, error, &)
        patience = @pool.checkout_timeout.to_f
        since = beginning(adapter, patience)
        @waiting.push(place = ::Thread::Queue.new)
        given = try(place, error, since, patience, &)
      rescue Vain
        adapter.fairlead_vain_since = since
        raise
      ensure
        hand_on(place, given)
      end

      # What has been given to this place, or to this caller, would be lost with an interruption.
      def hand_on(place, given)
        Uninterruptible.run { leave(place) }
      rescue ::Exception
        Uninterruptible.run { give(given) } if given
        raise
      end

      def beginning(adapter, patience)
        now, before = Fairlead::Pool.clock, adapter.fairlead_vain_since
        before && now < before + patience + AGAIN ? before : now
      end

      def try(place, error, since, patience)
        pauses = PAUSES.each
        loop do
          given = rest(place, error, pauses, deadline(since, patience))
          return moved(given) if given && given != :first

          give_up(error, since) if Fairlead::Pool.clock > deadline(since, patience) && (error || @waiting.first != place)
          next unless given == :first || @waiting.first.equal?(place)
          return moved(yield).tap { call(TOGETHER) }
        rescue ::ActiveRecord::ActiveRecordError => error
          raise unless passing?(error)
        end
      end

      def deadline(since, patience) = [since, @moved_at].max + patience

      def moved(result)
        @moved_at = Fairlead::Pool.clock
        result
      end

      def passing?(error) = !error.is_a?(Vain) && Faults.passing?(error)

      # @return [Object, nil] what it was given meanwhile.
      def rest(place, error, pauses, deadline)
        return place.pop(timeout: [deadline - Fairlead::Pool.clock, 0].max) unless @waiting.first.equal?(place)

        place.pop(timeout: error ? next_pause(pauses) : 0)
      end

      def next_pause(pauses)
        pauses.next
      rescue ::StopIteration
        PAUSES.last
      end

      # What was meant for one that was interrupted goes to the next.
      def leave(place)
        first = @waiting.first.equal?(place)
        @waiting.delete(place)
        place.close
        until place.empty?
          given = place.pop
          give(given) unless given == :first
        end
        call(1) if first
      end

      # Who may try now, without a pause.
      def call(count) = @waiting.first(count).each { |place| pushed?(place, :first) }

      # @return [Boolean] false: who had this place has left it, in another thread.
      def pushed?(place, what)
        place.push(what)
        true
      rescue ::ClosedQueueError
        false
      end

      def give_up(error, since)
        told = (error&.cause || error)&.message.to_s.strip.chomp(".")
        crowded = told.match?(/too many|remaining connection slots/i)
        message = format("could not connect to the database (waited %.3f seconds)%s. Pool %s: %d connections of %s. %s.",
                         Fairlead::Pool.clock - since, told.empty? ? "" : ": #{told}", name,
                         @pool.connections.count(&:connected?), Limits.of(@pool), REMEDIES.fetch(crowded))
        raise Vain.new(message, connection_pool: @pool), cause: error
      end

      def name = "#{@pool.db_config.name.inspect} (role #{@pool.role}, shard #{@pool.shard})"

      # Has waited in vain.
      Vain = Class.new(::ActiveRecord::ConnectionNotEstablished)
      private_constant :Vain
    end
  end
end
