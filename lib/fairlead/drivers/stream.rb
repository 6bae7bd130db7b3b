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
      # @yieldparam row [Array, Hash]
      # @return [Object] what reading returns
      def self.each(each)
        rows = ::Thread::SizedQueue.new(AHEAD)
        reader = ::Thread.new do
          ::Thread.current.report_on_exception = false
          each.call { |row| rows.push(row) }
        ensure
          rows.close
        end
        while (row = rows.pop)
          yield row
        end
        reader.value
      ensure
        reader&.kill
      end
    end
  end
end
