# frozen_string_literal: true

require "json"
require_relative "movements"
require_relative "results"
require_relative "server"
require_relative "workload"

module Bench
  # What a workload asks for and its result has not: loads, the time and the rounds of each, peers, and peers that were set
  # otherwise than they are now.
  module Gaps
    module_function

    # @param result [Hash{String => Object}, nil] that was read.
    # @return [Array<String>] for people; empty where the result is that of the workload as it is.
    def of(workload, result)
      return ["not measured yet"] unless result

      lacking = {
        "loads" => workload.loads.map(&:name) - result["loads"].map { |load| load["name"] },
        "peers" => workload.peers - result["servers"].keys,
        "with other settings than now" => workload.peers.select { |label| set_otherwise?(label, workload, result) },
        **workload.loads.group_by { |load| too_little(load, workload, result) }
          .to_h { |lacks, loads| [loads.map(&:name).join(", "), lacks] }
      }
      lacking.filter_map { |title, list| "#{title}: #{list.join(", ")}" if list.any? }
    end

    # @return [Hash{String => Array<String>}] by workload, those that have any.
    def all
      Workload.names.to_h { |name| [name, of(Workload.load(name), Results.read(name))] }.reject { |_, gaps| gaps.empty? }
    end

    def set_otherwise?(label, workload, result)
      then_set = result["servers"][label] or return false
      then_set != JSON.parse(JSON.generate(Results.settings(Server.for(label), workload)))
    end

    # @param load [Workload::Load]
    # @return [Array<String>] like "6 s of 30", of a load that was measured.
    def too_little(load, workload, result)
      found = result["loads"].find { |one| one["name"] == load.name } or return []
      seconds, asked = [found["seconds"] || result["seconds"], load.seconds || workload.seconds]
      rounds = found["runs"].reject { |run| run["failed"] }.map { |run| run["server"] }.tally
      ours = rounds.fetch(result["servers"].keys.first, 0)
      unheard = (workload.peers & result["servers"].keys) - rounds.keys
      [
        ("#{seconds} s of #{asked}" if seconds < asked),
        ("#{ours} round#{"s" if ours != 1} of #{Movements::ROUNDS}" if ours < Movements::ROUNDS),
        ("no round of #{unheard.join(" and ")}" if unheard.any?)
      ].compact
    end
    private_class_method :set_otherwise?, :too_little
  end
end
