# frozen_string_literal: true

require_relative "../../pool/aims"

module Bench
  class Report
    # The page's parts that show the fair pool: the longest wait, histograms, and what nobody's waiting costs.
    module Pools
      # The columns of the tables, where a part has them.
      POOL_COLUMNS = {
        "microseconds" => ["µs", 2], "rate" => ["requests/s", 1], "min" => ["min s", 3], "max" => ["max s", 3],
        "mean" => ["mean s", 3], "errors" => ["errors", 0]
      }.freeze
      private_constant :POOL_COLUMNS

      private

      def pools(result)
        result["tables"].map do |table|
          aside = published(result["workload"], "the longest wait") if table["key"] == "threads"
          "<h4>#{escape(table["title"])}</h4>\n<div class=\"pair\">#{pool_bars(table)}#{aside}</div>" \
            "#{histograms(table)}\n#{pool_table(table)}#{verdicts(PoolBench::Aims.of(table))}#{facts(table)}"
        end.join
      end

      def ours?(row) = row["name"].start_with?("fairlead")

      def pool_bars(table)
        main, unit = table["key"] == "cost" ? %w[microseconds µs] : ["max", "s, the longest wait"]
        rows = table["rows"].map do |row|
          { name: row["name"], value: row[main], low: row["low"], high: row["high"], ours: ours?(row) }
        end
        chart(kind: "bars", unit: "#{unit} (less is better)", rows: rows.sort_by { |row| row[:value] })
      end

      def histograms(table)
        charts = table["rows"].filter_map do |row|
          row["histogram"] && chart(kind: "histogram", unit: row["name"], rows: row["histogram"], ours: ours?(row))
        end
        %(<div class="grid">#{charts.join}</div>) if charts.any?
      end

      def pool_table(table)
        columns = POOL_COLUMNS.select { |name, _| table["rows"].any? { |row| row.key?(name) } }
        rows = table["rows"].map do |row|
          figures = columns.map { |name, (_, decimals)| number(row[name], decimals) + pool_range(row, name) }
          figures << number(row["max"] / table["ideal"], 2) if table["ideal"]
          [escape(row["name"]), *figures]
        end
        html_table(["", *columns.values.map(&:first), *("max ÷ ideal" if table["ideal"])], rows)
      end

      def pool_range(row, name)
        return "" unless %w[microseconds max].include?(name) && row["low"] != row["high"]

        " <small>(#{number(row["low"], POOL_COLUMNS[name].last)}–#{number(row["high"], POOL_COLUMNS[name].last)})</small>"
      end
    end
  end
end
