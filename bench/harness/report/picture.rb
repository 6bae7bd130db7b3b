# frozen_string_literal: true

require "cgi/escape"
require_relative "../number"
require_relative "faults"

module Bench
  class Report
    # The README's picture: bars of requests per second for a few rows, readable on light and dark backgrounds.
    class Picture
      SHOWN = ["hello, 32 connections", "a wait of 0.1 s, 2,000 connections", "Rails 8.1, `render plain:`",
        "Rails 8.1, a PostgreSQL record as JSON",
        "Rails 8.1, 5 ms in PostgreSQL, 160 connections, 2 workers"].freeze
      WIDTH = 720
      LEFT = 90
      BAR = 15
      private_constant :SHOWN, :WIDTH, :LEFT, :BAR

      def initialize(headlines)
        @rows = headlines.rows.select { |row| SHOWN.include?(row.name) }
      end

      def to_s
        top = 8
        groups = @rows.map do |row|
          group, height = group(row, top)
          top += height
          group
        end
        <<~SVG
          <svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 #{WIDTH} #{top}" role="img"
            font-family="system-ui, sans-serif" font-size="12">
          <title>Requests per second: Fairlead beside other servers</title>
          <style>
          text { fill: #24292f } .title { font-weight: 600 } .ours { fill: #d9480f } .peer { fill: #8a96a3 }
          @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .ours { fill: #ff8a4c } .peer { fill: #6e7b89 } }
          </style>
          #{groups.join("\n")}
          </svg>
        SVG
      end

      private

      def group(row, top)
        bars = { "fairlead" => row.ours, **row.peers.compact }
        most = bars.values.max
        title = CGI.escapeHTML(row.name.delete("`"))
        lines = [%(<text class="title" x="0" y="#{top + 12}">#{title}, requests/s</text>)]
        bars.each_with_index do |(name, value), index|
          mark = Faults::MARK if row.faults.include?(name)
          lines << bar(name, value, mark, top + 18 + (index * (BAR + 3)), most)
        end
        [lines.join("\n"), 30 + (bars.size * (BAR + 3))]
      end

      def bar(name, value, mark, y, most)
        kind = name == "fairlead" ? "ours" : "peer"
        width = (value / most * (WIDTH - LEFT - 70)).round(1)
        [
          %(<text x="#{LEFT - 8}" y="#{y + 12}" text-anchor="end">#{name.capitalize}</text>),
          %(<rect class="#{kind}" x="#{LEFT}" y="#{y}" width="#{width}" height="#{BAR}" rx="2"/>),
          %(<text x="#{(LEFT + width + 6).round(1)}" y="#{y + 12}">#{Number.text(value)}#{mark}</text>)
        ].join
      end
    end
  end
end
