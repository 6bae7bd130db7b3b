# frozen_string_literal: true

require "json"
require_relative "results"
require_relative "server"
require_relative "workload"

module Bench
  # What a workload asks for and its result has not: loads, peers, and peers that were set otherwise than they are now.
  module Gaps
    module_function

    # @param result [Hash{String => Object}, nil] that was read.
    # @return [Array<String>] for people; empty where the result is that of the workload as it is.
    def of(workload, result)
      return ["not measured yet"] unless result

      {
        "loads" => workload.loads.map(&:name) - result["loads"].map { |load| load["name"] },
        "peers" => workload.peers - result["servers"].keys,
        "with other settings than now" => workload.peers.select { |label| set_otherwise?(label, workload, result) }
      }.filter_map { |title, names| "#{title}: #{names.join(", ")}" if names.any? }
    end

    # @return [Hash{String => Array<String>}] by workload, those that have any.
    def all
      Workload.names.to_h { |name| [name, of(Workload.load(name), Results.read(name))] }.reject { |_, gaps| gaps.empty? }
    end

    def set_otherwise?(label, workload, result)
      then_set = result["servers"][label] or return false
      then_set != JSON.parse(JSON.generate(Results.settings(Server.for(label), workload)))
    end
    private_class_method :set_otherwise?
  end
end
