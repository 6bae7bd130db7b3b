# frozen_string_literal: true

require_relative "../outcome"
require_relative "../workload"

module Bench
  class Report
    # What a workload aims at, told once more from the runs that its result holds.
    module Verdicts
      module_function

      # @param result [Hash{String => Object}] that was read.
      # @param load [Hash{String => Object}] one of its loads.
      # @return [Array<(String, Boolean)>] nil for those that cannot be told of what was measured.
      def of(result, load)
        workload = workload_of(result) or return []
        comparison = comparison(result, load)
        workload.aims.select { |aim| aim.load == load["name"] }.map { |aim| [aim.text, aim.test.call(comparison)] }
      end

      # @return [Array<String>] what is said of our runs that were repeated.
      def misses(result, load)
        known = workload_of(result)&.loads&.find { |found| found.name == load["name"] }
        known ? Outcome.misses(known, comparison(result, load)) : []
      end

      # @return [Workload, nil] nil where it is not ours that is compared with others.
      def workload_of(result)
        ours = result.fetch("servers", {}).keys.first == "fairlead"
        Workload.load(result["workload"]) if ours && Workload.names.include?(result["workload"])
      end

      def comparison(result, load) = Comparison.read(load, order: result["servers"].keys)
      private_class_method :workload_of, :comparison
    end
  end
end
