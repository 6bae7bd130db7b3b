# frozen_string_literal: true

require_relative "../statistics"

module Bench
  class Report
    # The page's charts over the number of connections.
    module Curves
      private

      # Each server's share of what its connections allow.
      def curve(result)
        rows = servers(result).map do |server|
          { name: server, points: shares(result, server), ours: server.start_with?("fairlead") }
        end
        "<h4>Share of the theoretical limit</h4>\n" \
          "#{chart(kind: "growth", unit: "share of the theoretical limit", rows:)}"
      end

      def shares(result, server)
        result["loads"].filter_map do |load|
          median = load.dig("summary", server, load["main_figure"], "median")
          median && [load["connections"], median * result["curve"] / load["connections"]]
        end
      end

      # Memory from no connection to the most.
      def growth(result)
        return unless result && result["loads"]&.all? { |load| load["main_figure"] == "extra_memory" }

        rows = servers(result).filter_map { |server| growth_of(server, result["loads"]) }
        "<h4>Memory of all processes, from no connection to the most</h4>\n" \
          "#{chart(kind: "growth", unit: "MB (PSS)", rows:)}"
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

      def servers(result) = result["loads"].flat_map { |load| load["summary"].keys }.uniq

      def middle(runs, figure) = Statistics.median(runs.map { |run| run[figure] }.sort)
    end
  end
end
