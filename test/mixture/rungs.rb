# frozen_string_literal: true

module Fairlead
  class Mixture
    # What the ladder has done. The page has figures of a worker only while it lives: they are noted meanwhile.
    class Rungs
      # What should be of each, by the slot of a worker.
      FIGURES = {
        "leads of standbys" => ->(slot) { slot[:standbys] },
        "hand-overs" => ->(slot) { slot[:handed] },
        "runs in lanes of threads" => ->(slot) { slot[:lane].zero? ? slot[:lane_requests] : 0 },
        "runs in lane workers" => ->(slot) { slot[:lane].zero? ? 0 : slot[:lane_requests] }
      }.freeze
      private_constant :FIGURES

      def initialize = @workers = {}

      # @param slots [Array<Hash{Symbol => Integer}>] of the page.
      def note(slots)
        slots.each { |slot| @workers[slot[:pid]] = FIGURES.transform_values { |figure| figure.call(slot) } }
      end

      # @param log [String] the server's.
      # @return [Hash{String => Integer}]
      def counts(log)
        sums = FIGURES.keys.to_h { |name| [name, @workers.each_value.sum { |figures| figures[name] }] }
        { **sums, "lines on relief workers" => log.scan("relief workers serve").size }
      end

      # @return [Array<String>] the rungs that were not used.
      def faults(log) = counts(log).select { |_, count| count.zero? }.keys.map { |name| "there were no #{name}" }
    end
  end
end
