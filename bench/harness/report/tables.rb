# frozen_string_literal: true

require_relative "../number"
require_relative "../progress"
require_relative "verdicts"

module Bench
  class Report
    # The page's parts that show the figures of loads as text: a table for each, what was aimed at, and what disturbed it.
    module Tables
      # The columns, where a load has them.
      COLUMNS = {
        "requests_per_second" => ["requests/s", 0], "rate" => ["asked/s", 0], "drift" => ["capacity moved", 2],
        "refused" => ["503", 0],
        "refused_p99" => ["503 p99 ms", 1], "refused_later_p99" => ["after 1 s", 1], "gave_up" => ["gave up", 0],
        "recovered" => ["slow for ms after", 0], "mean" => ["mean ms", 2], "p50" => ["p50 ms", 2], "p99" => ["p99 ms", 2],
        "page_kilobytes" => ["KB a page", 0], "http" => ["HTTP", 0],
        "p999" => ["p99.9 ms", 2], "max" => ["max ms", 1], "handed" => ["handed over, each", 3],
        "suspended" => ["suspended", 0], "elsewhere" => ["others' slowest ms", 0], "kilobytes_each" => ["KB each", 1],
        "cpu_per_request" => ["CPU µs", 1], "pss" => ["PSS MB", 0], "peak_rss" => ["peak RSS MB", 0]
      }.freeze
      private_constant :COLUMNS

      private

      # @param title [String] of the load's main figure.
      def table(load, title)
        main = load["main_figure"]
        columns = COLUMNS.select { |name, _| name != main && load["summary"].any? { |_, entry| entry[name] } }
        head = ["", title, "fairlead ÷ it", "errors", "non-2xx", "failed rounds", *columns.values.map(&:first)]
        html_table(head, load["summary"].map { |server, entry| row(server, entry, main, columns) })
      end

      def row(server, entry, main, columns)
        [
          escape(server), range(entry[main], entry.dig(main, "median").to_f >= 100 ? 0 : 2),
          server == entry["reference"] ? "—" : range(entry["ratio"], 2),
          entry["errors"], entry["non_2xx"], entry["failed"],
          *columns.map { |name, (_, decimals)| number(entry.dig(name, "median"), decimals) }
        ]
      end

      # @param rows [Array<Array<String>>] the first cell of each is its title.
      def html_table(head, rows)
        lines = rows.map do |title, *cells|
          "<tr><th>#{title}</th>#{cells.map { |cell| "<td>#{cell}</td>" }.join}</tr>"
        end
        %(<div class="wide"><table><thead><tr>#{head.map { |cell| "<th>#{cell}</th>" }.join}</tr></thead>) +
          "<tbody>#{lines.join("\n")}</tbody></table></div>\n"
      end

      def range(summary, decimals)
        return "—" unless summary

        spread = %( <small>(#{number(summary["minimum"], decimals)}–#{number(summary["maximum"], decimals)})</small>)
        "#{number(summary["median"], decimals)}#{spread if summary["count"].to_i > 1}"
      end

      def number(value, decimals) = value ? Number.text(value, decimals) : "—"

      # What no bound was asked of.
      def misses(list) = list.map { |text| %(<p class="note">#{text}.</p>\n) }.join

      # Where something else ran on the machine meanwhile.
      def noise(load)
        used = load["runs"].filter_map { |run| run["other_cpu"] }.max
        return unless used && used > Progress::NOISE

        %(<p class="note">Other processes used up to #{number(used, 2)} cores during one run: these figures are doubtful.</p>\n)
      end

      # What was aimed at, and whether it was reached; nil: that cannot be told.
      def verdicts(list)
        lines = list.map do |text, reached|
          next %(<li class="open">? #{escape(text)}: not measured</li>) if reached.nil?

          mark, kind = reached ? %w[✓ reached] : %w[✗ missed]
          %(<li class="#{kind}">#{mark} #{escape(text)}</li>)
        end
        %(<ul class="aims">#{lines.join}</ul>\n) if lines.any?
      end
    end
  end
end
