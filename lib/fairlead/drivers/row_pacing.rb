# frozen_string_literal: true

module Fairlead
  module Drivers
    # Lets other fibers go on while a fiber goes through many rows.
    class RowPacing
      # Seconds after which other fibers have their turn.
      SLICE = 0.004
      # Smaller results are not worth a look at the clock.
      ROWS = 500
      # How many rows may be read ahead.
      AHEAD = 256
      private_constant :SLICE, :AHEAD

      # For rows each of which the driver waits for without knowing fibers: a thread reads them, and the fiber takes them from it.
      #
      # @param each [#call] reads, and yields each row
      # @param stop [#call] called if not all rows are read: ends the query
      # @yieldparam row [Array, Hash]
      # @return [Object] what reading returns
      def self.read_ahead(each, stop)
        rows = ::Thread::SizedQueue.new(AHEAD)
        reader = read(each, rows)
        while (row = rows.pop)
          yield row
        end
        reader.value.tap { reader = nil }
      ensure
        rows.close
        stop.call if reader&.alive?
      end

      def self.read(each, rows)
        ::Thread.new do
          ::Thread.current.report_on_exception = false
          each.call { |row| rows.push(row) }
        ensure
          rows.close
        end
      end
      private_class_method :read

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
