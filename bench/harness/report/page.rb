# frozen_string_literal: true

require "cgi/escape"
require "erb"
require "json"
require_relative "curves"
require_relative "origin"
require_relative "overview"
require_relative "pools"
require_relative "published"
require_relative "rounds"
require_relative "tables"
require_relative "verdicts"

module Bench
  class Report
    # The page: tables in plain HTML, and what the charts draw as JSON. Everything it needs is in it.
    class Page
      include Curves
      include Origin
      include Pools
      include Published
      include Tables

      FOLDER = File.expand_path("../../report", __dir__)
      # In the order in which they are read: title, and which workloads. What none of them names comes last.
      CHAPTERS = {
        "The server itself" => %w[hello hello-pipelined headers json upload download],
        "At the edge" => %w[tls tls-http2 json-tls json-http2 files files-tls rails-page],
        "Requests that wait" => %w[blocking sleep waiting],
        "Requests that compute" => %w[cpu-turns cpu-turns-4],
        "Rails and databases" => %w[
          rails-plain rails-find rails-db db-10x10 db-10x10-trilogy db-10x10-mysql2 db-curve
        ],
        "When something goes wrong" => %w[
          mixed mixed-4 mixed-published mixed-published-4 mixed-rails mixed-rails-mysql2 overload tail
        ],
        "Streams, and who is first" => %w[streams-beside-pages keepalive-beside-new],
        "What reading metrics costs" => %w[price-of-seeing],
        "Memory" => %w[idle idle-waiting idle-tls],
        "The pool" => %w[fair-pool fair-pool-jruby]
      }.freeze
      # What a main figure is called, and whether more of it is better.
      FIGURES = {
        "requests_per_second" => ["requests/s", true], "pages_per_second" => ["pages/s", true],
        "extra_memory" => ["MB more", false],
        "slowest" => ["ms until the slowest is answered", false], "p99" => ["p99, ms", false]
      }.freeze
      PERCENTILES = %w[p50 p90 p99 p999 max].freeze
      private_constant :FOLDER, :CHAPTERS, :FIGURES, :PERCENTILES

      # @param sweeps [Array<Hash>] results in which the settings of peers are compared with each other.
      def initialize(results, sweeps = [])
        @results = results.to_h { |result| [result["workload"], result] }
        @sweeps = sweeps.to_h { |result| [result["workload"], result] }
        @published = Published.read
        @charts = []
      end

      def to_s
        body = chapters.map { |title, names| chapter(title, names) }.join
        ERB.new(read("template.html.erb"), trim_mode: "-").result(binding)
      end

      # @return [Overview] in the order of the chapters.
      def overview = Overview.new(chapters.values.flatten.filter_map { |name| @results[name] }, FIGURES)

      private

      def read(name) = File.read(File.join(FOLDER, name))

      def escape(text) = CGI.escapeHTML(text.to_s)

      # In a script element nothing may look like its end.
      def data = JSON.generate(shortened(@charts)).gsub("</", "<\\/").gsub(/"number:(.*?)"/, '\1')

      # To what can be drawn, as Ruby writes it: the last digits are not the same with each version of JSON.
      def shortened(data)
        case data
        when Hash then data.transform_values { |value| shortened(value) }
        when Array then data.map { |value| shortened(value) }
        when Float then "number:#{data.round(5 - Math.log10(data.abs.clamp(1e-9, nil)).floor)}"
        else data
        end
      end

      def chapters
        others = (@results.keys | Workload.names).sort - CHAPTERS.values.flatten
        others.empty? ? CHAPTERS : { **CHAPTERS, "More" => others }
      end

      def chapter(title, names)
        "<h2>#{title}</h2>\n#{names.map { |name| section(name) }.join}"
      end

      def section(name)
        result = @results[name]
        parts = [%(<section id="#{name}">\n<h3>#{name}</h3>\n), title(result), told(name, result)]
        if result
          parts << curve(result) if result["curve"]
          parts << (result["tables"] ? pools(result) : loads(result))
        end
        parts << growth(result) << unmeasured(name, result)
        parts << facts(result) unless result&.key?("tables") # each table has its own
        parts << gaps(name, result) << sweep(name) << settings(result) << "</section>\n"
        parts.join
      end

      def title(result)
        return %(<p class="note">Not measured yet.</p>\n) unless result

        text = result["title"].sub(/:\z/, "")
        "<p>#{escape(text)}#{"." unless text.end_with?("?")}</p>\n"
      end

      def loads(result)
        result["loads"].map do |load|
          title, more = FIGURES.fetch(load["main_figure"])
          seconds = ", #{load["seconds"]} s" unless [nil, result["seconds"]].include?(load["seconds"])
          ideal = "ideal: #{load["ideal"]}" if load["ideal"]
          note = ["#{load["tool"]}#{seconds}", ideal, Rounds.note(load)].compact.join(" · ")
          charts = [bars(load), distribution(load), published(result["workload"], load["name"])]
          "<h4>#{escape(load["name"])}: #{escape(title)}#{" (less is better)" unless more}</h4>\n" \
            "<p class=\"note\">#{escape(note)}</p>\n<div class=\"pair\">#{charts.join}</div>\n" \
            "#{table(load, title)}#{verdicts(Verdicts.of(result, load))}" \
            "#{misses(Verdicts.misses(result, load))}#{noise(load)}"
        end.join
      end

      def bars(load)
        unit, more = FIGURES.fetch(load["main_figure"])
        rows = load["summary"].filter_map do |server, entry|
          main = entry[load["main_figure"]] or next
          { name: server, value: main["median"], low: main["minimum"], high: main["maximum"],
            ours: server.start_with?("fairlead"), failed: entry["failed"], errors: entry["errors"] + entry["non_2xx"] }
        end
        chart(kind: "bars", unit:, rows: rows.sort_by { |row| more ? -row[:value] : row[:value] })
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

      # The settings of peers that were tried.
      def sweep(name)
        result = @sweeps[name] or return
        charts = result["loads"].map do |load|
          "<figure><figcaption>#{escape(load["name"])}</figcaption>#{bars(load)}#{noise(load)}</figure>"
        end
        "<details><summary>Settings of peers that were tried</summary>\n<div class=\"grid\">#{charts.join}</div>\n" \
          "#{facts(result)}</details>\n"
      end

      def chart(**description)
        @charts << description
        count = description[:kind] == "bars" ? description[:rows].size : 6
        %(<div class="chart" style="height: #{70 + (count * 30)}px"><canvas data-chart="#{@charts.size - 1}" role="img" ) +
          %(aria-label="#{escape(description[:unit])}"></canvas></div>)
      end
    end
  end
end
