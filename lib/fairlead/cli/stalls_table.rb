# frozen_string_literal: true

module Fairlead
  class Stall
    # The worst stalls as text for people.
    class Table
      KINDS = {
        "blocked" => "blocked in C, without the lock", "stuck" => "asleep, holding the lock", "computing" => "computing"
      }.freeze
      # Frames of a backtrace that are shown.
      FRAMES = 3
      private_constant :KINDS, :FRAMES

      # @param server [Hash] what a server says of itself (see Inquiry).
      # @param stalls [Array<Hash>] as {Board#worst} makes them.
      def initialize(server, stalls)
        @server = server
        @stalls = stalls
      end

      # @return [String]
      def to_s
        return "#{heading}\n#{nothing}\n" if @stalls.empty?

        details = @stalls.map.with_index(1) { |stall, number| detail(stall, number) }
        "#{heading}\n\n#{lines.join("\n")}\n\n#{details.join("\n")}"
      end

      private

      def heading
        "Fairlead in #{@server[:folder]}, process #{@server[:pid]}, #{@server[:addresses].join(" ")}"
      end

      def nothing
        return "Nothing is told of stalls: the option stall_report is 0." if @server[:limit].zero?

        "Nothing has stalled for more than #{@server[:limit]} s."
      end

      def lines
        rows = @stalls.map.with_index(1) do |stall, number|
          [number.to_s, seconds(stall[:seconds]), stall[:count].to_s, seconds(stall[:total]),
           KINDS.fetch(stall[:kind]), subject(stall)]
        end
        rows.unshift(["", "longest", "times", "together", "why", "what"])
        widths = rows.transpose.map { |column| column.map(&:size).max }
        rows.map { |row| row.each_with_index.map { |cell, index| fit(cell, index, widths) }.join("  ").rstrip }
      end

      def fit(cell, index, widths) = index < 4 ? cell.rjust(widths[index]) : cell.ljust(widths[index])

      def seconds(number) = format("%.3f s", number)

      def subject(stall)
        return "#{stall[:route]}#{" (#{stall[:action]})" if stall[:action]}" if stall[:route]
        return "thread #{stall[:thread]}" if stall[:thread]

        stall[:backtrace].empty? ? "not looked at in time" : "outside of a request"
      end

      def detail(stall, number)
        frames = stall[:backtrace].first(FRAMES).map { |line| "     #{line.delete_prefix("#{@server[:folder]}/")}\n" }
        "#{number.to_s.rjust(3)}  #{stall[:at] || "where is not known"}#{" (gem #{stall[:gem]})" if stall[:gem]}\n" \
          "#{frames.join}     #{stall[:reaction]} #{stall[:advice]}\n"
      end
    end
  end
end
