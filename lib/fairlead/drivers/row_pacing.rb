# frozen_string_literal: true

module Fairlead
  module Drivers
    # Rows that a driver reads one by one, each with a wait that knows no fibers: a thread of its own reads them, and the
    # fiber takes them from it.
    module Stream
      # How many rows may be there before they are used.
      AHEAD = 256
      private_constant :AHEAD

      # @param each [#call] reads, and yields each row
      # @param stop [#call] called with the thread where not all rows are read: ends the query, and waits for the thread
      # @yieldparam row [Array, Hash]
      # @return [Object] what reading returns
      def self.each(each, stop)
        rows = ::Thread::SizedQueue.new(AHEAD)
        reader = read(each, rows)
        while (row = rows.pop)
          yield row
        end
        reader.value.tap { reader = nil }
      ensure
        rows.close
        stop.call(reader) if reader&.alive?
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
    end
  end
end
