# frozen_string_literal: true

module Bench
  class Report
    # Whether a figure is that of a server which did not do all that it was asked for, or did not keep the connections whose
    # memory it is. It is shown, since the server may be the fastest, and marked.
    module Faults
      MARK = "*"
      MEANING = "Some of its answers were errors or did not come, it closed connections, or it failed in a round."

      # @param entry [Hash{String => Object}] of a load's summary.
      def self.any?(entry) = entry.values_at("failed", "errors", "non_2xx", "closed_by_server").sum(&:to_i).positive?
    end
  end
end
