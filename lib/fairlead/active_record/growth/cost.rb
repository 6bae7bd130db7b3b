# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    class Growth
      # How long it takes to open a connection: how long any were connecting, by how many there are since.
      class Cost
        # Those who look do so every few milliseconds while anybody waits: what is later was not seen.
        GAP = 0.1
        # Seconds, as long as none has been seen connecting; and the least.
        UNKNOWN = 0.01
        LEAST = 0.0001
        private_constant :GAP, :UNKNOWN, :LEAST

        def initialize
          @open = @opened = 0
          @seconds = 0.0
          @since = nil
        end

        # To be called with each look.
        def look(open, connecting, now)
          add(open - @open, now - @since) if @since && now - @since < GAP
          @open = open
          @since = (now if connecting.positive?)
        end

        # From now on some are connecting.
        def begin(now) = @since = now

        # @return [Float] seconds.
        def each = @opened.zero? ? UNKNOWN : [@seconds / @opened, LEAST].max

        private

        def add(opened, seconds)
          @seconds += seconds
          @opened += opened if opened.positive?
        end
      end
    end
  end
end
