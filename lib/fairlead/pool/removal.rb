# frozen_string_literal: true

module Fairlead
  class Pool
    # Takes connections out of a pool: those that are worn, idle for long, or left behind by who has ended. A place
    # counts as held until its connection is closed: there are never more than the size allows. Then it is room for a
    # new one, and the oldest waiter's.
    #
    # Closing is the user's code: it runs without the lock, may take long, may raise, and may be interrupted; whatever
    # happens, the places come back.
    class Removal
      # In the child of a fork, where the parent still uses it.
      def self.abandon(connection)
        connection.respond_to?(:discard!) ? connection.discard! : close_quietly(connection)
      rescue ::StandardError
        nil
      end

      def self.close_quietly(connection)
        connection.close if connection.respond_to?(:close)
      rescue ::StandardError
        nil
      end

      # @param places [Places]
      def initialize(places)
        @places = places
      end

      # Passes on a place whose connection is not to be kept. The caller has deferred interrupts.
      def pass_on(place, owner)
        dispose(place)
      ensure
        @places.pass_on(place, owner)
      end

      # Ends all idle connections, and those in use when they come back.
      def retire(close, shut_down:)
        ::Thread.handle_interrupt(NEVER) { close_all(@places.retire(close, shut_down: shut_down), close) }
      end

      # Ends the connections that have been idle for longer.
      def reap(idle_seconds, close)
        ::Thread.handle_interrupt(NEVER) { close_all(@places.occupy_idle(idle_seconds), close) }
      end

      # Ends the connections of those who have ended without giving them back: they are in an unknown state and are not
      # used again.
      def recover_abandoned(close = Removal.method(:close_quietly))
        ::Thread.handle_interrupt(NEVER) { close_all(@places.occupy_abandoned, close) }
      end

      private

      # Each is closed and its place given back, also when closing another one raises: the first error is raised
      # in the end. Interrupts are deferred, except while closing; if one comes, the rest is dropped unclosed.
      #
      # @param places [Array<Place>] occupied ones.
      def close_all(places, close)
        error = nil
        while (place = places.shift)
          begin
            if place.connected
              place.discard = close
              failed = dispose(place)
              error ||= failed
            end
          ensure
            @places.pass_on(place, place)
          end
        end
        raise error if error
      ensure
        places.each do |left|
          left.vacate
          @places.pass_on(left, left)
        end
      end

      # @return [StandardError, nil] what was raised.
      def dispose(place)
        close = place.discard || @places.close
        connection = place.vacate
        ::Thread.handle_interrupt(ON_BLOCKING) { close.call(connection) }
        nil
      rescue ::StandardError => error
        error
      end
    end
    private_constant :Removal
  end
end
