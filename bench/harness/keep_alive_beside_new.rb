# frozen_string_literal: true

require_relative "open_loop"
require_relative "wrk"

module Bench
  # Busy connections, as those of a router that always has the next request ready, beside new connections with one request
  # each. A server that serves requests by age lets both groups wait equally long.
  class KeepAliveBesideNew
    CAPACITY_SECONDS = 2
    # The busy connections start so much earlier and end so much later than the new ones.
    MARGIN_SECONDS = 0.5
    # Seconds after which a new client gives up.
    PATIENCE = 3
    # New connections at once, at most.
    NEW = 1_000
    private_constant :CAPACITY_SECONDS, :MARGIN_SECONDS, :PATIENCE, :NEW

    attr_reader :connections

    # @param connections [Integer] busy ones.
    # @param share [Float] new connections a second, as a share of the server's own capacity.
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

    # @return [Hash{Symbol => Numeric}] latencies (ms): p50, p99 and max of the new connections, kept_p50 and kept_p99 of the
    #   busy ones; new_to_kept is p50 ÷ kept_p50.
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
