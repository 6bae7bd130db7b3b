# frozen_string_literal: true

require "cgi"
require "erb"
require "json"
require_relative "../progress"
require_relative "../statistics"
require_relative "overview"
require_relative "pools"
require_relative "published"
require_relative "verdicts"

module Bench
  class Report
    # The page: tables in plain HTML, and what the charts draw as JSON. Everything it needs is in it.
    class Page
      include Pools
      include Published

      FOLDER = File.expand_path("../../report", __dir__)
      # In the order in which they are read: title, and which workloads.
      CHAPTERS = {
        "The server itself" => %w[hello hello-pipelined headers json upload download],
        "Requests that wait" => %w[blocking sleep waiting],
        "Requests that compute" => %w[cpu-turns cpu-turns-4],
        "Rails and databases" => %w[rails-plain rails-find rails-db db-10x10 db-10x10-trilogy db-10x10-mysql2 db-curve],
        "When something goes wrong" => %w[mixed mixed-4 mixed-published mixed-published-4 mixed-rails mixed-rails-mysql2 overload tail],
        "Memory" => %w[idle idle-waiting],
        "The pool" => %w[fair-pool fair-pool-jruby]
      }.freeze
      # What a main figure is called, and whether more of it is better.
      FIGURES = {
        "requests_per_second" => ["requests/s", true], "extra_memory" => ["MB more", false],
        "slowest" => ["ms until the slowest is answered", false], "p99" => ["p99, ms", false]
      }.freeze
      # The columns of the tables, where a load has them.
      COLUMNS = {
        "requests_per_second" => ["requests/s", 0], "refused" => ["503", 0], "refused_p99" => ["503 p99 ms", 1], "refused_later_p99" => ["after 1 s", 1],
        "gave_up" => ["gave up", 0], "recovered" => ["slow for ms after", 0], "p50" => ["p50 ms", 2], "p99" => ["p99 ms", 2],
        "p999" => ["p99.9 ms", 2], "max" => ["max ms", 1], "handed" => ["handed over, each", 3],
        "suspended" => ["suspended", 0], "elsewhere" => ["others' slowest ms", 0], "kilobytes_each" => ["KB each", 1],
        "cpu_per_request" => ["CPU µs", 1], "pss" => ["PSS MB", 0], "peak_rss" => ["peak RSS MB", 0]
      }.freeze
      PERCENTILES = %w[p50 p90 p99 p999 max].freeze
      private_constant :FOLDER, :CHAPTERS, :FIGURES, :COLUMNS, :PERCENTILES

      # @param sweeps [Array<Hash>] results in which the settings of peers are compared with each other.
      def initialize(results, sweeps = [])
        @results = results.to_h { |result| [result["workload"], result] }
        @sweeps = sweeps.to_h { |result| [result["workload"], result] }
        @published = Published.read
        @charts = []
      end

      def to_s
        body = CHAPTERS.filter_map { |title, names| chapter(title, names) }.join
        ERB.new(read("template.html.erb"), trim_mode: "-").result(binding)
      end

      private

      def read(name) = File.read(File.join(FOLDER, name))

      def escape(text) = CGI.escapeHTML(text.to_s)

      # In a script element nothing may look like its end.
      def data = JSON.generate(@charts).gsub("</", "<\\/")

      def overview
        Overview.new(CHAPTERS.values.flatten.filter_map { |name| @results[name] }, FIGURES).to_html
      end

      def chapter(title, names)
        known = names.select { |name| @results.key?(name) || @published.key?(name) }
        return if known.empty?

        "<h2>#{title}</h2>\n#{known.map { |name| section(name) }.join}"
      end

      def section(name)
        result = @results[name]
        parts = [%(<section id="#{name}">\n<h3>#{name}</h3>\n)]
        parts << (result ? "<p>#{escape(result["title"].sub(/:\z/, ""))}#{"." unless result["title"].end_with?("?")}</p>\n" : %(<p class="note">Not measured yet.</p>\n))
        parts << told(name)
        parts << curve(result) if result&.fetch("curve", nil)
        parts << (result["tables"] ? pools(result) : loads(result)) if result
        parts << growth(result) << unmeasured(name, result)
        parts << facts(result) unless result&.key?("tables") # each table has its own
        parts << sweep(name) << "</section>\n"
        parts.join
      end

      # When and how it was measured, a result or one of the pool's tables.
      def facts(result)
        return unless result

        rounds, seconds, workers = result.values_at("rounds", "seconds", "workers")
        facts = [
          result["date"], rounds && "#{rounds} round#{"s" if rounds != 1}#{" of #{seconds} s" if seconds}",
          workers && "#{workers} worker#{"s" if workers != 1} each", result["commit"] || result.dig("versions", "fairlead"),
          result["ruby"]
        ]
        %(<p class="note">#{escape(facts.compact.join(" · "))}</p>\n)
      end

      def loads(result)
        result["loads"].map do |load|
          title, more = FIGURES.fetch(load["main_figure"])
          ideal = " · ideal: #{load["ideal"]}" if load["ideal"]
          "<h4>#{escape(load["name"])}: #{escape(title)}#{" (less is better)" unless more}</h4>\n" \
            "<p class=\"note\">#{escape(load["tool"])}#{escape(ideal)}</p>\n" \
            "<div class=\"pair\">#{bars(load)}#{distribution(load)}#{published(result["workload"], load["name"])}</div>\n" \
            "#{table(load)}#{verdicts(Verdicts.of(result, load))}#{noise(load)}"
        end.join
      end

      def bars(load)
        rows = load["summary"].filter_map do |server, entry|
          main = entry[load["main_figure"]] or next
          { name: server, value: main["median"], low: main["minimum"], high: main["maximum"],
            ours: server.start_with?("fairlead"), failed: entry["failed"], errors: entry["errors"] + entry["non_2xx"] }
        end
        more = FIGURES.fetch(load["main_figure"]).last
        chart(kind: "bars", unit: FIGURES.fetch(load["main_figure"]).first,
          rows: rows.sort_by { |row| more ? -row[:value] : row[:value] })
      end

      # How the latencies are spread, where percentiles are known.
      def distribution(load)
        return if load["main_figure"] == "slowest"

        rows = load["summary"].filter_map do |server, entry|
          values = PERCENTILES.filter_map { |name| (entry[name] || {})["median"]&.then { |value| [name, value] } }
          { name: server, values:, ours: server.start_with?("fairlead") } if values.size > 2
        end
        chart(kind: "latencies", unit: "ms", rows:) unless rows.empty?
      end

      def table(load)
        columns = COLUMNS.select { |name, _| load["summary"].any? { |_, entry| entry[name] } && name != load["main_figure"] }
        head = ["", FIGURES.fetch(load["main_figure"]).first, "fairlead ÷ it", "errors", "non-2xx", "failed rounds",
          *columns.values.map(&:first)]
        rows = load["summary"].map { |server, entry| row(server, entry, load["main_figure"], columns) }
        cells = rows.map { |row| "<tr>#{row.each_with_index.map { |cell, index| index.zero? ? "<th>#{cell}</th>" : "<td>#{cell}</td>" }.join}</tr>" }
        %(<div class="wide"><table><thead><tr>#{head.map { |cell| "<th>#{cell}</th>" }.join}</tr></thead>) +
          "<tbody>#{cells.join("\n")}</tbody></table></div>\n"
      end

      def row(server, entry, main, columns)
        [
          escape(server), range(entry[main], entry.dig(main, "median").to_f >= 100 ? 0 : 2),
          server == entry["reference"] ? "—" : range(entry["ratio"], 2),
          entry["errors"], entry["non_2xx"], entry["failed"],
          *columns.map { |name, (_, decimals)| number(entry.dig(name, "median"), decimals) }
        ]
      end

      def range(summary, decimals)
        return "—" unless summary

        spread = %( <small>(#{number(summary["minimum"], decimals)}–#{number(summary["maximum"], decimals)})</small>)
        "#{number(summary["median"], decimals)}#{spread if summary["count"].to_i > 1}"
      end

      def number(value, decimals)
        return "—" unless value

        whole, fraction = format("%.#{decimals}f", value).split(".")
        [whole.gsub(/(?<=\d)(?=(\d{3})+\z)/, ","), fraction].compact.join(".")
      end

      # Where something else ran on the machine meanwhile.
      def noise(load)
        used = load["runs"].filter_map { |run| run["other_cpu"] }.max
        return unless used && used > Progress::NOISE

        %(<p class="note">Other processes used up to #{number(used, 2)} cores in one of its runs: doubtful.</p>\n)
      end

      # What was aimed at, and whether it was reached.
      def verdicts(list)
        lines = list.map do |text, reached|
          mark, kind = reached ? %w[✓ reached] : %w[✗ missed]
          %(<li class="#{kind}">#{mark} #{escape(text)}</li>)
        end
        %(<ul class="aims">#{lines.join}</ul>\n) if lines.any?
      end

      # What each server does of what its connections could do, as they grow in number.
      def curve(result)
        servers = result["loads"].flat_map { |load| load["summary"].keys }.uniq
        rows = servers.map { |server| { name: server, points: shares(result, server), ours: server.start_with?("fairlead") } }
        "<h4>Share of what so many connections could do</h4>\n#{chart(kind: "growth", unit: "share of the theoretical limit", rows:)}"
      end

      def shares(result, server)
        result["loads"].filter_map do |load|
          median = load.dig("summary", server, load["main_figure"], "median")
          median && [load["connections"], median * result["curve"] / load["connections"]]
        end
      end

      # Of crowds: all memory, from nobody to as many as there were.
      def growth(result)
        return unless result && result["loads"]&.all? { |load| load["main_figure"] == "extra_memory" }

        servers = result["loads"].flat_map { |load| load["summary"].keys }.uniq
        rows = servers.filter_map { |server| growth_of(server, result["loads"]) }
        "<h4>Memory of all processes, from no connection to the most</h4>\n#{chart(kind: "growth", unit: "MB (PSS)", rows:)}"
      end

      def growth_of(server, loads)
        points = loads.filter_map do |load|
          runs = load["runs"].select { |run| run["server"] == server && !run["failed"] }
          [load["connections"], middle(runs, "memory_before"), middle(runs, "memory_with_crowd")] if runs.any?
        end
        return if points.empty?

        { name: server, ours: server.start_with?("fairlead"),
          points: [[0, points.first[1]], *points.map { |count, _, memory| [count, memory] }] }
      end

      def middle(runs, figure) = Statistics.median(runs.map { |run| run[figure] }.sort)

      # The settings of peers that were tried.
      def sweep(name)
        result = @sweeps[name] or return
        charts = result["loads"].map { |load| "<figure><figcaption>#{escape(load["name"])}</figcaption>#{bars(load)}</figure>" }
        "<details><summary>Settings of peers that were tried</summary>\n<div class=\"grid\">#{charts.join}</div>\n#{facts(result)}</details>\n"
      end

      def chart(**description)
        @charts << description
        count = description[:kind] == "bars" ? description[:rows].size : 7
        %(<div class="chart" style="height: #{70 + (count * 26)}px"><canvas data-chart="#{@charts.size - 1}" role="img" ) +
          %(aria-label="#{escape(description[:unit])}"></canvas></div>)
      end
    end
  end
end
