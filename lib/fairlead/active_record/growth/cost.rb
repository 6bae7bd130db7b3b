# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    class Growth
      # How long it takes to open a connection: for how long some were connecting, by how many there were more then. Since
      # whatever else is done meanwhile makes that longer, the least of it counts.
      class Cost
        # Those who look do so every few milliseconds while anybody waits: what is later was not seen.
        GAP = 0.5
        # Seconds, as long as none has been seen connecting; and the least.
        UNKNOWN = 0.01
        LEAST = 0.0001
        private_constant :GAP, :UNKNOWN, :LEAST

        def initialize
          @open = 0
          @since = @before = @looked_at = @least = nil
        end

        # To be called with each look.
        def look(open, connecting, now)
          @since = nil if @looked_at && now - @looked_at > GAP
          @open = open
          @looked_at = now
          connecting.positive? ? start(now) : finish(now)
        end

        # From now on some are connecting.
        def start(now)
          return if @since

          @since = now
          @before = @open
        end

        # @return [Float] seconds.
        def each = @least || UNKNOWN

        private

        def finish(now)
          opened = @since ? @open - @before : 0
          @least = [@least, (now - @since) / opened].compact.min.clamp(LEAST, nil) if opened.positive?
          @since = nil
        end
      end
    end
  end
end
