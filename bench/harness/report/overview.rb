# frozen_string_literal: true

require "cgi/escape"
require_relative "../number"
require_relative "faults"
require_relative "rounds"
require_relative "verdicts"

module Bench
  class Report
    # All loads at a glance: how much better ours does than the best peer, or how much worse.
    class Overview
      # @param ours, theirs [Float] the load's main figures.
      # @param unit [String] what they are.
      # @param times [Float] how many times as good as the best peer; 1 is level.
      # @param aims [Array<Boolean>] whether each was reached.
      # @param faults [Array<Boolean>] whether ours is to be marked, and theirs, see {Faults}.
      # @param rounds [Integer, nil] of the peers, where they had fewer than ours.
      Row = Data.define(:workload, :load, :ours, :peer, :theirs, :unit, :times, :aims, :faults, :rounds)

      # @param results [Array<Hash>] in the order in which they are shown.
      # @param figures [Hash{String => (String, Boolean)}] what a main figure is called, and whether more is better.
      def initialize(results, figures)
        @results = results
        @figures = figures
      end

      # @return [Array<Row>] those for which ours and a peer have a figure of the same round.
      def rows
        @results.flat_map { |result| (result["loads"] || []).filter_map { |load| row(result, load) } }
      end

      def to_html
        lines = rows.map { |row| line(row) }
        return "" if lines.empty?

        head = ["", "", ["fairlead", "wide-only"], ["best peer's", "wide-only"], ["", "wide-only"], "times as good", "",
          "best peer", "aims"].map { |title, kind| %(<th class="#{kind}">#{title}</th>) }
        %(<div class="wide"><table class="overview"><thead><tr>#{head.join}</tr></thead>\n) +
          "<tbody>#{lines.join("\n")}</tbody></table></div>\n"
      end

      private

      def row(result, load)
        figure = load["main_figure"]
        unit, more = @figures.fetch(figure)
        ours = load.dig("summary", "fairlead")
        return unless ours && ours[figure]

        peers = load["summary"].except(*Workload::LIMITS).select { |label, entry| !label.start_with?("fairlead") && entry[figure] && entry["ratio"] }
        peer, entry = peers.public_send(more ? :max_by : :min_by) { |_, summary| summary[figure]["median"] }
        return unless peer && (ratio = entry["ratio"]["median"]).positive?

        Row.new(workload: result["workload"], load: load["name"], ours: ours[figure]["median"], peer:,
          theirs: entry[figure]["median"], unit:, times: more ? ratio : 1 / ratio,
          aims: Verdicts.of(result, load).map(&:last).compact, faults: [ours, entry].map { |one| Faults.any?(one) },
          rounds: Rounds.of_peers(load))
      end

      # What is wide-only has no room on a phone.
      def line(row)
        workload, load, peer, unit = [row.workload, row.load, row.peer, row.unit].map { |text| CGI.escapeHTML(text) }
        ours, theirs, times = [row.ours, row.theirs, row.times].zip([*row.faults, row.faults.any?]).map do |value, faulty|
          "#{figure(value)}#{Faults::MARK if faulty}"
        end
        peer += " <small>(#{Rounds.text(row.rounds)})</small>" if row.rounds
        %(<tr><th><a href="##{workload}">#{workload}</a></th><th>#{load}</th>) +
          %(<td class="wide-only">#{ours}</td><td class="wide-only">#{theirs}</td>) +
          %(<th class="wide-only unit">#{unit}</th><td>#{times}</td><th>#{bar(row)}</th>) +
          "<th>#{peer}</th><th>#{aims(row.aims)}</th></tr>"
      end

      # Who lost answers is not ahead.
      def bar(row)
        kind = if row.times >= 1.02 && !row.faults.first then "ahead"
               else row.times <= 0.98 ? "behind" : "level"
               end
        # Each doubling is as wide as the last one; the widest is 32 times.
        width = (Math.log2(row.times).abs.clamp(0, 5) * 20).round
        %(<span class="bar #{kind}" style="width: #{width}px"></span>)
      end

      def aims(reached)
        return "" if reached.empty?

        reached.all? ? "✓" : %(<span class="missed">✗ #{reached.count(&:!)} of #{reached.size}</span>)
      end

      def figure(value) = Number.text(value, value < 100 ? 2 : 0)
    end
  end
end
