# frozen_string_literal: true

require_relative "../number"
require_relative "../progress"
require_relative "../statistics"
require_relative "faults"

module Bench
  class Report
    # The few figures that the README shows, of ours and of each peer at the best of its settings: requests a second,
    # and what is better if there is less of it.
    class Headlines
      OURS = "fairlead"
      PEERS = %w[falcon iodine itsi agoo puma].freeze
      # What the row is called, its workload and load.
      ROWS = [
        ["hello, 1 connection", "hello", "c1"], ["hello, 4 connections", "hello", "c4"],
        ["hello, 32 connections", "hello", "c32"], ["hello with a browser's headers", "headers", "c32"],
        ["a small document as JSON", "json", "c32"],
        ["each waits 0.1 s, 2,000 connections", "sleep", "c2000"],
        ["Rails 8.1, `render plain:`", "rails-plain", "c32"],
        ["Rails 8.1, a record of PostgreSQL as JSON", "rails-find", "c32"],
        ["Rails 8.1, 5 ms in PostgreSQL, 160 connections, 2 workers", "rails-db", "c160"],
        ["Rails 8.1, ten queries of 10 ms, 128 connections, 2 workers", "db-10x10", "c128"],
        ["… 512 connections", "db-10x10", "c512"]
      ].freeze
      # The same of memory and waits, with the figure that is meant.
      LESS = [
        ["ms until the slowest of 50 waits of 0.1 s is over, 2 workers", "mixed", "none", "slowest"],
        ["… beside five requests that block in C for 2 s", "mixed", "free", "slowest"],
        ["… beside five that block and hold Ruby's lock", "mixed", "held", "slowest"],
        ["… beside five that compute for 2 s", "mixed", "cpu", "slowest"],
        ["ms within which 99 of 100 are answered (p99), Rails, each server at half of its own requests/s",
         "tail", "50", "p99"],
        ["… at 80 % of its own", "tail", "80", "p99"],
        ["KB for an idle connection, of 10,000", "idle", "c10000", "kilobytes_each"],
        ["KB for a request that waits, of 10,000", "idle-waiting", "c10000", "kilobytes_each"]
      ].freeze
      # After a row whose figures others may have moved, by what they did on the machine meanwhile. They move no memory.
      DISTURBED = "†"
      MEMORY = "kilobytes_each"
      BEHIND = "Where it is not ahead, and why: [notes](bench/NOTES.md#not-ahead)."
      private_constant :OURS, :ROWS, :LESS, :DISTURBED, :MEMORY, :BEHIND

      # faults: the servers whose figure is to be marked, see {Faults}; rounds: of the figure that has the fewest.
      Row = Data.define(:name, :ours, :peers, :faults, :rounds, :disturbed)

      def initialize(results)
        @results = results.to_h { |result| [result["workload"], result] }
      end

      # @return [Array<Row>] those that have been measured.
      def rows = ROWS.filter_map { |name, workload, load| row(name, workload, load, nil, :max) }

      # @return [Array<Row>] of what is better if there is less of it.
      def less_rows = LESS.filter_map { |name, workload, load, figure| row(name, workload, load, figure, :min) }

      # The other way round, in the README.
      def to_markdown
        tables = [table("requests/s", rows, :max), table("less is better", less_rows, :min)].compact
        "#{tables.join("\n")}\n#{BEHIND}\n\n#{conditions}\n"
      end

      private

      # @param figure [String, nil] nil: the load's main one.
      # @param best [Symbol] :max or :min.
      def row(name, workload, load, figure, best)
        found = @results[workload]&.fetch("loads")&.find { |entry| entry["name"] == load } or return
        figure ||= found["main_figure"]
        ours = found["summary"][OURS]
        return unless ours&.key?(figure)

        peers = PEERS.to_h { |peer| [peer, best(found["summary"], peer, figure, best)] }
        shown = { OURS => ours, **peers.compact }
        Row.new(name:, ours: ours[figure]["median"], peers: peers.transform_values { |entry| entry&.dig(figure, "median") },
          faults: shown.select { |_, entry| Faults.any?(entry) }.keys,
          rounds: shown.values.map { |entry| entry[figure]["count"].to_i }.min,
          disturbed: figure != MEMORY && disturbed?(found["runs"] || []))
      end

      # Whether a server was disturbed in half of its rounds: less moves no median.
      def disturbed?(runs)
        runs.group_by { |run| run["server"] }.values.any? do |own|
          used = own.filter_map { |run| run["other_cpu"] }.sort
          used.any? && Statistics.median(used) > Progress::NOISE
        end
      end

      # @return [Hash, nil] what that of a peer's settings gave whose figure is the best.
      def best(summary, peer, figure, best)
        summary.filter_map { |label, entry| entry if label[/\A[^:]+/] == peer && entry[figure] }
          .public_send(:"#{best}_by") { |entry| entry[figure]["median"] }
      end

      def table(title, rows, best)
        return if rows.empty?

        head = [title, "Fairlead", *PEERS.map(&:capitalize)]
        lines = [head, ["---", *["---:"] * (PEERS.size + 1)]] + rows.map do |row|
          figures = { OURS => row.ours, **row.peers }
          # Who lost answers has won nothing.
          winner = figures.except(*row.faults).values.compact.public_send(best)
          name = [row.name, (DISTURBED if row.disturbed)].compact.join(" ")
          [name, *figures.map { |server, value| cell(value, row.faults.include?(server), winner) }]
        end
        "#{lines.map { |cells| "| #{cells.join(" | ")} |" }.join("\n")}\n"
      end

      def cell(value, faulty, winner)
        return "" unless value

        text = Number.text(value, value >= 10 ? 0 : 1)
        return "#{text}#{Faults::MARK}" if faulty

        value == winner ? "**#{text}**" : text
      end

      def conditions
        result = @results["hello"] || @results.values.first or return ""
        shown = rows + less_rows
        fewest = shown.map(&:rounds).min
        notes = [
          ("\\#{Faults::MARK} #{Faults::MEANING}" if shown.flat_map(&:faults).any?),
          ("#{DISTURBED} Other work was done on the machine meanwhile." if shown.any?(&:disturbed)),
          "Medians of #{fewest} round#{"s" if fewest != 1} or more, in turn, each server at the best of its settings, " \
          "on a #{result.dig("machine", "cores")}-core machine that also ran the load; " \
          "#{result.dig("versions", "ruby")[/\Aruby [\d.]+/].capitalize} with YJIT, one worker where nothing else is said.",
          "`bin/bench` repeats each row; figures move by a tenth from run to run, waits by more, ratios less."
        ]
        notes.compact.join(" ").gsub(/(.{1,116})(?: |\z)/, "\\1\n").chomp
      end
    end
  end
end
