# frozen_string_literal: true

module Fairlead
  module Drivers
    # The turn of a fiber that goes through many rows, and waits for nothing.
    class Turn
      # Seconds after which it lets others go on.
      SLICE = 0.004
      # Results of fewer rows are not worth a look at the clock.
      ROWS = 500
      private_constant :SLICE

      def initialize = @since = Clock.now

      # To be called between two rows.
      def pass
        return if Clock.now - @since < SLICE

        Fiber.current_scheduler&.yield
        @since = Clock.now
      end
    end
  end
end
