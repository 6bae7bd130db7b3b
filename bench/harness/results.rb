# frozen_string_literal: true

require "fileutils"
require "json"
require "time"
require "tmpdir"
require_relative "comparison"
require_relative "machine"
require_relative "toolchain"

module Bench
  # What a run leaves: all figures of all rounds, what was measured with which versions, and where.
  module Results
    # To be raised when a reader of older files would misread newer ones.
    FORMAT = 1
    FOLDER = File.join(Toolchain::ROOT, "bench/results")
    # Of what is compared where it is not Fairlead with its peers.
    FOLDERS = { "sweep" => "sweeps", "price" => "price" }.freeze
    PARTIAL_FOLDER = File.join(Toolchain::WORK, "results")
    # What is summarized, where a load has it.
    FIGURES = %i[
      rate drift refused refused_p99 refused_later_p99 bare gave_up recovered elsewhere suspended handed resumed requests_per_second
      kilobytes_each alone_p99 slowdown kept streams tokens_per_second gap_p50 gap_p99 gap_max delay_p50 delay_p99 rate_spread
      held_back cores kept_p50 kept_p99 kept_per_second new_to_kept
      pages_per_second page_kilobytes http mean p50 p90 p99 p999 max cpu_per_request peak_rss pss
    ].freeze
    private_constant :FIGURES, :FOLDER, :FOLDERS, :PARTIAL_FOLDER

    module_function

    # @param runs [Hash{String => Array<Hash>}] what {Runner#run} returned.
    # @param loads [Array<Workload::Load>] those of it that were measured.
    # @param took [Float] seconds, with all starts and warm-ups: the next run says from it how long it will take.
    # @param peer_rounds [Integer] in how many of the rounds the peers took part.
    # @return [Hash]
    def document(workload, servers, runs, loads:, toolchain:, rounds:, seconds:, seed:, versions:, took:,
      peer_rounds: rounds)
      {
        format: FORMAT, workload: workload.name, title: workload.title, curve: workload.curve,
        date: Time.now.utc.iso8601, rounds:, peer_rounds: (peer_rounds if peer_rounds < rounds), seconds:,
        warm_up: workload.warm_up, workers: workload.workers, seed:, took: took.round,
        machine: Machine.description,
        versions: {
          ruby: toolchain.description, yjit: true, wrk: Machine.wrk_version, **versions, gems: toolchain.gems
        },
        servers: servers.to_h { |server| [server.label, settings(server, workload)] },
        loads: loads.map { |load| describe(load, runs[load.name], servers.map(&:label)) }
      }.compact
    end

    # A whole run replaces the workload's published result; a partial one (fewer rounds, fewer servers) is put
    # aside, under its date.
    #
    # @param kind [String, nil] see {Options#kind}.
    # @return [String] the path.
    def write(document, whole:, kind: nil)
      name = document[:workload]
      file = whole ? path(name, kind) : File.join(PARTIAL_FOLDER, "#{name}-#{Time.now.utc.strftime("%Y%m%d-%H%M%S")}.json")
      FileUtils.mkdir_p(File.dirname(file))
      File.write(file, "#{JSON.pretty_generate(document)}\n")
      file
    end

    # @return [Hash{String => Object}, nil] the last whole result.
    def read(name, kind: nil)
      JSON.parse(File.read(path(name, kind)))
    rescue Errno::ENOENT
      nil
    end

    # @param document [Hash{String => Object}] that was read.
    # @return [Hash{String => Object}] what {WorkloadRun} would have to be to measure the same once more.
    def identity(document)
      versions = document["versions"]
      {
        "workload" => document["workload"], "loads" => document["loads"].map { |load| load["name"] },
        "servers" => document["servers"].keys, "rounds" => document["rounds"],
        "seconds" => document["loads"].map { |load| load["seconds"] || document["seconds"] },
        "peer_rounds" => document["peer_rounds"] || document["rounds"],
        **versions.slice("ruby", "gems"), "ours" => versions.select { |name, _| name.start_with?("fairlead", "nginx") }
      }
    end

    # Of a whole result.
    def path(name, kind = nil) = File.join(FOLDER, *FOLDERS[kind], "#{name}.json")

    # How a server was started, without what differs from run to run.
    def settings(server, workload)
      Dir.mktmpdir do |folder|
        site = workload.site(port: "PORT", backend: "BACKEND", folder:, metrics: ("METRICS" if workload.metrics))
        portable = ->(text) { text&.gsub(folder, ".")&.gsub("#{Toolchain::ROOT}/", "") }
        command = portable.call(server.command(site).join(" "))
        files = Dir.children(folder).to_h { |name| [name, portable.call(File.read(File.join(folder, name)))] }
        { command:, ruby: (false unless server.ruby?), environment: server.environment(site).transform_values(&portable), files: }.compact
      end
    end

    def describe(load, runs, order)
      comparison = Comparison.new(runs, order:)
      main = load.generator.main_figure
      {
        name: load.name, tool: load.generator.description, connections: load.generator.connections,
        ideal: load.ideal, most: load.most, seconds: load.seconds, main_figure: main,
        summary: comparison.servers.to_h { |server| [server, summarize(comparison, server, main)] }, runs:
      }
    end

    def summarize(comparison, server, main)
      figures = [main, *FIGURES]
      {
        **figures.to_h { |figure| [figure, comparison.summary(server, figure)&.to_h] }.compact,
        reference: comparison.reference, ratio: comparison.ratio(server, main)&.to_h,
        **%i[errors non_2xx closed_by_server].to_h { |count| [count, comparison.total(server, count)] },
        failed: comparison.failures(server).size
      }
    end
  end
end
