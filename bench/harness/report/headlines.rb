# frozen_string_literal: true

module Bench
  class Report
    # The few figures that the README shows: requests a second (or what else is compared) of ours and of each peer, at
    # the best of its settings.
    class Headlines
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
        ["Rails 8.1, ten queries of 10 ms, 512 connections, 2 workers", "db-10x10", "c512"]
      ].freeze
      private_constant :ROWS

      Row = Data.define(:name, :ours, :peers)

      def initialize(results)
        @results = results.to_h { |result| [result["workload"], result] }
      end

      # @return [Array<Row>] those that have been measured; a peer that failed in a round has no figure.
      def rows
        ROWS.filter_map do |name, workload, load|
          found = @results[workload]&.fetch("loads")&.find { |entry| entry["name"] == load } or next
          summary = found["summary"]
          ours = figure(summary["fairlead"], found["main_figure"]) or next
          Row.new(name:, ours:, peers: PEERS.to_h { |peer| [peer, best(summary, peer, found["main_figure"])] })
        end
      end

      # The other way round, in the README.
      def to_markdown
        head = ["requests/s", "Fairlead", *PEERS.map(&:capitalize)]
        lines = [head, ["---", *["---:"] * (PEERS.size + 1)]] + rows.map do |row|
          figures = [row.ours, *row.peers.values]
          [row.name, *figures.map { |value| cell(value, figures.compact.max) }]
        end
        "#{lines.map { |cells| "| #{cells.join(" | ")} |" }.join("\n")}\n\n#{conditions}\n"
      end

      private

      def best(summary, peer, figure_name)
        summary.filter_map { |label, entry| figure(entry, figure_name) if label[/\A[^:]+/] == peer }.max
      end

      def figure(entry, name)
        entry && entry["failed"].to_i.zero? ? entry.dig(name, "median") : nil
      end

      def cell(value, best)
        return "" unless value

        text = value.round.to_s.gsub(/(?<=\d)(?=(\d{3})+\z)/, ",")
        value == best ? "**#{text}**" : text
      end

      def conditions
        result = @results["hello"] || @results.values.first or return ""
        machine = result["machine"]
        "Medians of #{@results.values.filter_map { |entry| entry["rounds"] }.min} rounds or more, in turn, each server " \
          "at the best of its settings, on a #{machine["cores"]}-core machine that\nalso ran the load; " \
          "#{result.dig("versions", "ruby")[/\Aruby [\d.]+/].capitalize} with YJIT, one worker where nothing else is said. " \
          "`bin/bench` repeats each row; figures move\nby a tenth from run to run, ratios less."
      end
    end
  end
end
