# frozen_string_literal: true

module Fairlead
  class CLI
    # Slow and running requests as text for people.
    class SlowTable
      # What a request's time is spent on, by kind.
      WORDS = {
        turn: "waiting for its turn", cpu: "computing", gvl: "waiting for Ruby's lock", connection: "waiting for a database connection",
        database: "waiting for the database", socket: "waiting for a socket", sleep: "sleeping", lock: "waiting for a lock",
        blocked: "blocked", gc: "collecting garbage", write: "writing to its client", other: "waiting"
      }.freeze
      # Parts, addresses and frames shown of a request.
      PARTS = 3
      private_constant :WORDS, :PARTS

      # @param server [Hash] its answer, see {ControlSocket.servers}
      # @param requests [Hash] see {RequestReports#of}
      def initialize(server, requests)
        @server = server
        @slow, @running = requests.values_at(:slow, :in_flight)
      end

      def to_s = "#{heading}\n\n#{slow}\n#{running}"

      private

      def heading
        "Fairlead in #{@server[:folder]}, process #{@server[:pid]}, #{@server[:addresses].join(" ")}"
      end

      def slow
        return "No request of the last minutes was slow.\n" if @slow.empty?

        rows = @slow.map.with_index(1) do |request, number|
          [number.to_s, Humanize.latency(request[:duration]), Humanize.latency(request[:queue]), "#{Humanize.duration(request[:ago])} ago",
           request[:status].to_s, main_part(request), name(request)]
        end
        left = [false, false, false, false, false, true, true]
        table = Humanize.table([["", "took", "queued", "ended", "status", "mostly", "what"], *rows], left)
        details = @slow.map.with_index(1) { |request, number| detail(request, number) }
        "#{table.join("\n")}\n\n#{details.join("\n")}"
      end

      def main_part(request)
        kind, seconds = request[:times].max_by(&:last)
        kind ? "#{WORDS.fetch(kind)} #{Humanize.percent(100 * seconds / request[:duration])}" : "-"
      end

      def name(request) = request[:route] || "#{request[:method]} #{request[:path]}"

      def detail(request, number)
        id = " (request #{request[:request_id]})" if request[:request_id]
        lines = ["#{number.to_s.rjust(3)}  #{request[:method]} #{request[:path]}#{id}",
                 parts(request[:times].sort_by { |_, seconds| -seconds }.map { |kind, seconds| [WORDS.fetch(kind), seconds] }),
                 parts(places(request[:sockets]), "for "), parts(places(request[:frames]), "at ")]
        lines.compact.join("\n     ") << "\n"
      end

      def places(rows) = rows.to_a.map { |row| row.values_at(:at, :seconds) }

      def parts(pairs, word = "")
        "#{word}#{pairs.first(PARTS).map { |what, seconds| "#{what} #{Humanize.latency(seconds)}" }.join(", ")}" if pairs.any?
      end

      def running
        return "Nothing runs now.\n" if @running.empty?

        rows = @running.map do |request|
          now = [WORDS.fetch(request[:waits_for].to_sym), request[:detail]].compact.join(" ")
          [request[:worker].to_s, Humanize.latency(request[:age]), now, "#{request[:method]} #{request[:path]}"]
        end
        "#{Humanize.table([["worker", "runs for", "now", "what"], *rows], [false, false, true, true]).join("\n")}\n"
      end
    end
  end
end
