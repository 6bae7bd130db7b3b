# frozen_string_literal: true

module Bench
  class Report
    # Whether a figure is that of a server which did not do all that it was asked for. It is shown, since the server may be
    # the fastest, and marked.
    module Faults
      MARK = "*"
      MEANING = "Some of its answers were errors or did not come, or it failed in a round."

      # @param entry [Hash{String => Object}] of a load's summary.
      def self.any?(entry) = entry.values_at("failed", "errors", "non_2xx").sum(&:to_i).positive?
    end
  end
end
