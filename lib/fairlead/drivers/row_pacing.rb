# frozen_string_literal: true

module Fairlead
  module Drivers
    # Lets other fibers go on while a fiber goes through many rows.
    class RowPacing
      # Seconds after which other fibers have their turn.
      SLICE = 0.004
      # Smaller results are not worth a look at the clock.
      ROWS = 500
      private_constant :SLICE

      # @param block [Proc] that is called for each row.
      # @return [Proc]
      def self.paced(block)
        pacing = new
        lambda do |row|
          pacing.pass
          block.call(row)
        end
      end

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
