# frozen_string_literal: true

require "json"

module Bench
  class Report
    # The page's parts that show what others have published, from published.json. They say where it is from, and stand
    # beside our figures of the same load.
    module Published
      FILE = File.expand_path("../../published.json", __dir__)
      private_constant :FILE

      # @return [Hash{String => Hash}] by workload. A chart is known under each workload and load that it names as "also".
      def self.read
        known = JSON.parse(File.read(FILE))
        known.values.each do |entry|
          entry["charts"].each do |chart|
            chart.fetch("also", {}).each do |workload, load|
              known[workload] ||= entry.merge("charts" => [])
              known[workload]["charts"] << chart.merge("title" => load)
            end
          end
        end
        known
      end

      private

      # What others have published of a workload, where, and what was set otherwise there.
      def told(name, result)
        known = @published[name] or return
        source = known["source"]
        origin = source ? %(<a href="#{escape(source)}">Source</a>.) : "The source was not found."
        %(<p class="note">Published by others: #{escape(known["text"])} #{origin} ) +
          "They were measured on other machines: compare the shape, not the figures.</p>\n#{otherwise(known, result)}"
      end

      def otherwise(known, result)
        here = { "processes" => result&.dig("workers"), "seconds" => seconds_beside(known, result) }.compact
        differences = here.filter_map do |setting, value|
          "#{setting} #{value} (there #{known[setting]})" unless [nil, value.to_s].include?(known[setting]&.to_s)
        end
        %(<p class="note">Set otherwise here: #{escape(differences.join(", "))}.</p>\n) if differences.any?
      end

      # Of our loads that are shown beside theirs.
      def seconds_beside(known, result)
        titles = known["charts"].map { |chart| chart["title"] }
        load = result&.dig("loads")&.find { |one| titles.include?(one["name"]) } or return
        load["seconds"] || result["seconds"]
      end

      def published(name, title)
        entry = @published.dig(name, "charts")&.find { |chart| chart["title"] == title } or return
        published_chart(name, entry)
      end

      # Those without a load of ours beside them.
      def unmeasured(name, result)
        titles = result ? (result["loads"] || []).map { |load| load["name"] } : []
        titles << "the longest wait" if result&.key?("tables")
        charts = (@published.dig(name, "charts") || []).reject { |entry| titles.include?(entry["title"]) }
        %(<div class="grid">#{charts.map { |entry| published_chart(name, entry) }.join}</div>\n) if charts.any?
      end

      def published_chart(name, entry)
        rows = entry["rows"].map { |label, value| { name: label, value:, published: true } }
        unit = entry["unit"] || @published[name]["unit"] || "requests/s"
        "<figure>#{chart(kind: "bars", unit:, rows:)}" \
          "<figcaption>as published: #{escape(entry["title"])}</figcaption></figure>"
      end
    end
  end
end
