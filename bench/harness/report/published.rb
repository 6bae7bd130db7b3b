# frozen_string_literal: true

require "json"

module Bench
  class Report
    # The page's parts that show what others have published, from published.json. They say where it is from, and stand
    # beside our figures of the same load.
    module Published
      FILE = File.expand_path("../../published.json", __dir__)
      private_constant :FILE

      # @return [Hash{String => Hash}] by workload.
      def self.read = JSON.parse(File.read(FILE))

      private

      # What others have published of a workload, and where.
      def told(name)
        known = @published[name] or return
        source = known["source"]
        origin = source ? %(<a href="#{escape(source)}">Source</a>.) : "The source was not found."
        %(<p class="note">Published by others: #{escape(known["text"])} #{origin} ) +
          "Measured on other machines: compare the shape, not the figures.</p>\n"
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
