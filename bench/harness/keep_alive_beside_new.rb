# frozen_string_literal: true

require_relative "open_loop"
require_relative "wrk"

module Bench
  # Connections of a router, each of which always has the next request ready, and new connections with one request each: is
  # whoever comes first served first? Then both wait for as long.
  class KeepAliveBesideNew
    CAPACITY_SECONDS = 2
    # For which the busy connections are there before the first new one, and after the last.
    MARGIN_SECONDS = 0.5
    # Whoever waits for longer gives up.
    PATIENCE = 3
    # New connections at once, at most.
    NEW = 1_000
    private_constant :CAPACITY_SECONDS, :MARGIN_SECONDS, :PATIENCE, :NEW

    attr_reader :connections

    # @param connections [Integer] that are busy.
    # @param share [Float] of what the server can do, which comes on new connections.
    def initialize(connections:, share:, path: "/")
      @connections = connections
      @share = share
      @path = path
    end

    def name = "keep_alive_beside_new"

    def description
      "#{@connections} busy connections, beside new ones with one request each at #{(@share * 100).round} % of the server's own " \
        "capacity (path #{@path})"
    end

    # Of the new ones.
    def main_figure = :p99

    # @return [Numeric] seconds, about.
    def duration(seconds) = CAPACITY_SECONDS + (2 * MARGIN_SECONDS) + seconds

    # @return [Hash{Symbol => Numeric}] latencies (ms) of the new ones, kept_p50 and kept_p99 of the busy ones, and
    #   new_to_kept, the median of the former by that of the latter.
    def run(server, seconds)
      capacity = busy(server, CAPACITY_SECONDS)
      rate = capacity[:requests_per_second] * @share
      kept = Thread.new { busy(server, seconds + (2 * MARGIN_SECONDS).ceil) }
      sleep MARGIN_SECONDS
      fresh = OpenLoop.new(rate:, path: @path, connections: NEW, patience: PATIENCE, keep_alive: false).ask(server, rate, seconds)
      figures(fresh, kept.value, seconds).merge(rate:)
    ensure
      kept&.join
    end

    private

    def busy(server, seconds) = Wrk.new(connections: @connections, path: @path).run(server, seconds)

    def figures(fresh, kept, seconds)
      {
        requests: fresh.values_at(:answered, :refused, :wrong).sum + kept[:requests], seconds:,
        errors: fresh.values_at(:failed, :gave_up).sum + kept[:errors],
        non_2xx: fresh.values_at(:wrong, :refused).sum + kept[:non_2xx],
        requests_per_second: fresh[:in_time].fdiv(seconds) + kept[:requests_per_second],
        p50: fresh[:waited_p50], p99: fresh[:waited_p99], max: [fresh[:max], fresh[:waited_p99]].max,
        kept_p50: kept[:p50], kept_p99: kept[:p99], kept_per_second: kept[:requests_per_second],
        new_to_kept: fresh[:waited_p50] / kept[:p50]
      }
    end
  end
end
