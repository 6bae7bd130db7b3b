# frozen_string_literal: true

require_relative "../comparison"
require_relative "../workload"

module Bench
  class Report
    # What a workload aims at, told once more from the runs that its result holds.
    module Verdicts
      module_function

      # @param result [Hash{String => Object}] that was read.
      # @param load [Hash{String => Object}] one of its loads.
      # @return [Array<(String, Boolean)>] those that can be told of what was measured.
      def of(result, load)
        order = result.fetch("servers", {}).keys
        return [] unless order.first == "fairlead" && Workload.names.include?(result["workload"])

        comparison = Comparison.new(load["runs"].map { |run| run.transform_keys(&:to_sym) }, order:)
        aims = Workload.load(result["workload"]).aims.select { |aim| aim.load == load["name"] }
        aims.map { |aim| [aim.text, aim.test.call(comparison)] }.reject { |_, reached| reached.nil? }
      end
    end
  end
end
