# frozen_string_literal: true

module Bench
  class Report
    # Whether a server lost answers, closed connections or failed in a round. Its figure is shown with a mark.
    module Faults
      MARK = "*"
      MEANING = "The server lost or refused some requests, closed connections, or failed in a round."

      # @param entry [Hash{String => Object}] of a load's summary.
      def self.any?(entry) = entry.values_at("failed", "errors", "non_2xx", "closed_by_server").sum(&:to_i).positive?
    end
  end
end
