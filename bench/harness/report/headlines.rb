# frozen_string_literal: true

require_relative "../number"
require_relative "../progress"
require_relative "../statistics"
require_relative "faults"

module Bench
  class Report
    # The README's table: Fairlead and each peer at its best setting, first requests per second, then figures of which
    # less is better.
    class Headlines
      OURS = "fairlead"
      PEERS = %w[falcon iodine itsi agoo puma].freeze
      # The name of the row, its workload and load.
      ROWS = [
        ["hello, 1 connection", "hello", "c1"], ["hello, 32 connections", "hello", "c32"],
        ["hello with a browser's headers", "headers", "c32"],
        ["a wait of 0.1 s, 2,000 connections", "sleep", "c2000"],
        ["Rails 8.1, `render plain:`", "rails-plain", "c32"],
        ["Rails 8.1, a PostgreSQL record as JSON", "rails-find", "c32"],
        ["Rails 8.1, 5 ms in PostgreSQL, 160 connections, 2 workers", "rails-db", "c160"],
        ["Rails 8.1, ten queries of 10 ms, 128 connections, 2 workers", "db-10x10", "c128"],
        ["… 512 connections", "db-10x10", "c512"]
      ].freeze
      # Rows of memory and waits, with the figure that they show.
      LESS = [
        ["ms until the slowest of 50 waits of 0.1 s ends, 2 workers", "mixed", "none", "slowest"],
        ["… beside five requests that block in C for 2 s", "mixed", "free", "slowest"],
        ["… beside five requests that block and hold the GVL", "mixed", "held", "slowest"],
        ["… beside five requests that compute for 2 s", "mixed", "cpu", "slowest"],
        ["p99 of a Rails page in ms, each server at 50 % of its capacity", "tail", "50", "p99"],
        ["… at 80 % of its capacity", "tail", "80", "p99"],
        ["KB for an idle connection, of 10,000", "idle", "c10000", "kilobytes_each"],
        ["KB for a waiting request, of 10,000", "idle-waiting", "c10000", "kilobytes_each"]
      ].freeze
      # Marks a row during whose measurement other processes used the machine. Figures of memory are never marked.
      DISTURBED = "†"
      MEMORY = "kilobytes_each"
      BEHIND = "Where Fairlead is not ahead, and why: [notes](bench/NOTES.md#not-ahead)."
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

      # @return [String] the table, where Fairlead is behind, and how the figures were measured.
      def to_markdown
        head = ["requests/s", "Fairlead", *PEERS.map(&:capitalize)]
        lines = [head, ["---", *["---:"] * (PEERS.size + 1)], *cells(rows, :max)]
        less = cells(less_rows, :min)
        lines += [["**less is better**", *[""] * (PEERS.size + 1)], *less] if less.any?
        "#{lines.map { |line| "| #{line.join(" | ")} |" }.join("\n")}\n\n#{BEHIND}\n\n#{conditions}\n"
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

      def cells(rows, best)
        rows.map do |row|
          figures = { OURS => row.ours, **row.peers }
          # A server that lost answers cannot win.
          winner = figures.except(*row.faults).values.compact.public_send(best)
          name = [row.name, (DISTURBED if row.disturbed)].compact.join(" ")
          [name, *figures.map { |server, value| cell(value, row.faults.include?(server), winner) }]
        end
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
          ("#{DISTURBED} Other processes used the machine meanwhile." if shown.any?(&:disturbed)),
          "Medians of #{fewest} round#{"s" if fewest != 1} or more, each server at its best setting, on a " \
          "#{result.dig("machine", "cores")}-core machine that also ran the load generator; " \
          "#{result.dig("versions", "ruby")[/\Aruby [\d.]+/].capitalize} with YJIT, one worker unless the row says otherwise.",
          "`bin/bench` repeats each row; figures vary by a tenth between runs, waits by more, ratios by less."
        ]
        notes.compact.join(" ").gsub(/(.{1,116})(?: |\z)/, "\\1\n").chomp
      end
    end
  end
end
