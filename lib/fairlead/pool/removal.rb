# frozen_string_literal: true

module Fairlead
  class Pool
    # Takes connections out of a pool: discarded ones, those idle for long, and those whose holders have ended. A place
    # counts as held until its connection is closed, so there are never more connections than the size allows; then it is
    # room for a new one, and goes to the oldest waiter.
    #
    # Closing runs the user's code without the lock; it may take long, raise, or be interrupted. The places come back in
    # every case.
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
      def initialize(places) = @places = places

      # Passes on a place whose connection is not to be kept. The caller has deferred interrupts: one that came while the connection is
      # closed would count as an error of its closing.
      def pass_on(place, owner)
        dispose(place, NEVER)
      ensure
        @places.pass_on(place, owner)
      end

      # Closes connections, and passes on their places.
      #
      # @yieldreturn [Array<Place>] occupied ones.
      def remove(close) = ::Thread.handle_interrupt(NEVER) { close_all(yield, close) }

      # Removes connections whose holders have ended without giving them back: their state is unknown.
      def recover_abandoned(close = Removal.method(:close_quietly)) = remove(close) { @places.occupy_abandoned }

      private

      # Closes each connection and gives its place back, also when closing another one raises; raises the first error
      # in the end. Interrupts are deferred, except while closing: one that arrives there drops the rest unclosed.
      #
      # @param places [Array<Place>] occupied ones.
      def close_all(places, close)
        error = nil
        while (place = places.shift)
          begin
            if place.connected
              place.discard = close
              failed = dispose(place, ON_BLOCKING)
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

      # @param mask [Hash] of interrupts, while closing.
      # @return [StandardError, nil] what was raised.
      def dispose(place, mask)
        close = place.discard || @places.close
        connection = place.vacate
        ::Thread.handle_interrupt(mask) { close.call(connection) }
        nil
      rescue ::StandardError => error
        error
      end
    end
    private_constant :Removal
  end
end
