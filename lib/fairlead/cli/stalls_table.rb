# frozen_string_literal: true

module Fairlead
  class CLI
    # The worst stalls as text for people.
    class StallsTable
      KINDS = {
        "blocked" => "blocked in C, without the lock", "stuck" => "asleep, holding the lock", "computing" => "computing"
      }.freeze
      # Frames shown of a backtrace.
      FRAMES = 3
      private_constant :KINDS, :FRAMES

      # @param server [Hash] its answer, see {ControlSocket.servers}
      # @param stalls [Array<Hash>] see {Stall::Aggregator#worst}
      def initialize(server, stalls)
        @server = server
        @stalls = stalls
      end

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
        return "The server reports no stalls: the option stall_report is 0." if @server[:limit].zero?

        "Nothing has stalled for more than #{@server[:limit]} s."
      end

      def lines
        rows = @stalls.map.with_index(1) do |stall, number|
          [number.to_s, seconds(stall[:seconds]), stall[:count].to_s, seconds(stall[:total]), KINDS.fetch(stall[:kind]), subject(stall)]
        end
        Humanize.table([["", "longest", "times", "together", "why", "what"], *rows], [false, false, false, false, true, true])
      end

      def seconds(number) = format("%.3f s", number)

      def subject(stall)
        return "#{stall[:route]}#{" (#{stall[:action]})" if stall[:action]}" if stall[:route]
        return "thread #{stall[:thread]}" if stall[:thread]

        stall[:backtrace].empty? ? "unknown: it ended too soon" : "outside of a request"
      end

      def detail(stall, number)
        frames = stall[:backtrace].first(FRAMES).map { |line| "     #{line.delete_prefix("#{@server[:folder]}/")}\n" }
        "#{number.to_s.rjust(3)}  #{stall[:at] || "unknown place"}#{" (gem #{stall[:gem]})" if stall[:gem]}\n" \
          "#{frames.join}     #{stall[:reaction]} #{stall[:advice]}\n"
      end
    end
  end
end
