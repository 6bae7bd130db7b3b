# frozen_string_literal: true

module Bench
  class Report
    # In how many rounds something was measured: what was measured once is no median.
    module Rounds
      module_function

      def text(count) = "#{count} round#{"s" if count != 1}"

      # @param load [Hash{String => Object}] one of a result's.
      # @return [Integer, nil] those of the peer that took part in the fewest; nil where that is as many as ours.
      def of_peers(load)
        ours, peers = (load["runs"] || []).map { |run| run["server"] }.tally
          .partition { |server, _| server.start_with?("fairlead") }.map { |counts| counts.map(&:last).min }
        peers if ours && peers && peers < ours
      end

      # @return [String, nil] to be said beside the figures.
      def note(load) = of_peers(load)&.then { |count| "peers: #{text(count)}" }
    end
  end
end
