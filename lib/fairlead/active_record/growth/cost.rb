# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    class Growth
      # How long it takes to open a connection: how long any were connecting, by how many there are since.
      class Cost
        # Those who look do so every few milliseconds while any are connecting.
        GAP = 0.5
        # Seconds, as long as none has been seen connecting.
        UNKNOWN = 0.01
        private_constant :GAP, :UNKNOWN

        def initialize
          @open = @opened = 0
          @seconds = 0.0
          @connecting_at = nil
        end

        def look(open, connecting, now)
          @seconds += now - @connecting_at if @connecting_at && now - @connecting_at < GAP
          @connecting_at = (now if connecting.positive?)
          @opened += open - @open if open > @open
          @open = open
        end

        # @return [Float] seconds.
        def each = @seconds.zero? ? UNKNOWN : @seconds / @opened
      end
    end
  end
end
