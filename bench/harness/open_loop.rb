# frozen_string_literal: true

require "json"
require "open3"
require_relative "native_program"

module Bench
  # Open-loop load: requests come at a given rate whether earlier ones have been answered or not, as those of many
  # people do, and a latency counts from the moment at which the request was due. See open_loop.c.
  class OpenLoop
    # To find a server's own capacity: as many connections as keep it busy.
    CAPACITY_CONNECTIONS = 32
    CAPACITY_SECONDS = 2
    # How long it is looked whether all is as usual again, and what is usual where nobody stands in line.
    CALM_SECONDS = 2
    NORMAL_SECONDS = 0.1
    private_constant :CAPACITY_CONNECTIONS, :CAPACITY_SECONDS, :CALM_SECONDS, :NORMAL_SECONDS

    attr_reader :connections

    # @param rate [Numeric, nil] requests a second; nil with a share.
    # @param share [Float, nil] of the server's own capacity, which is measured first; and once more afterwards, since a
    #   machine that has become slower meanwhile was asked for a greater share.
    # @param connections [Integer] at most so many at once.
    # @param patience [Numeric] seconds after which a client gives up.
    # @param refusals [Boolean] whether 503 and clients that give up are part of the picture, not faults.
    # @param calm [Numeric, nil] requests a second that come right after the load: how long until they are answered as
    #   usual?
    # @param keep_alive [Boolean] whether requests share connections; otherwise each opens a new one.
    def initialize(rate: nil, share: nil, connections: 256, patience: 5, path: "/", refusals: false, calm: nil, keep_alive: true)
      @rate = rate
      @share = share
      @connections = connections
      @patience = patience
      @path = path
      @refusals = refusals
      @calm = calm
      @keep_alive = keep_alive
    end

    def name = "open_loop"

    def description
      rate = @share ? "#{(@share * 100).round} % of the server's own capacity" : "#{@rate} requests/s"
      "open loop, #{rate} at random moments, at most #{@connections} connections, patience #{@patience} s" \
        "#{"; then #{@calm} a second" if @calm}"
    end

    # @return [Numeric] seconds, about.
    def duration(seconds) = seconds + (@share ? 2 * CAPACITY_SECONDS : 0) + (@calm ? CALM_SECONDS : 0)

    def main_figure = @share ? :p99 : :requests_per_second

    # @return [Hash{Symbol => Numeric}] latencies in milliseconds, of the good answers.
    def run(server, seconds)
      before = capacity(server) if @share
      rate = @rate || (before[:requests_per_second] * @share)
      figures = ask(server, rate, seconds)
      after = capacity(server) if @share
      answers = figures.values_at(:answered, :refused, :wrong, :calm_answered).sum
      errors = figures.values_at(:failed, :calm_failed).sum + (@refusals ? 0 : figures[:gave_up])
      {
        requests: answers + [before, after].compact.sum { |capacity| capacity[:requests] }, rate:, errors:,
        **(@share ? { drift: (after[:requests_per_second] / before[:requests_per_second]) - 1 } : {}),
        seconds: figures[:seconds],
        # What is answered after the end of the load was served with time that nobody else wanted.
        requests_per_second: figures[:in_time] / figures[:seconds],
        non_2xx: figures[:wrong] + (@refusals ? 0 : figures[:refused]),
        **figures.slice(:offered, :refused, :gave_up, :mean, :p50, :p75, :p90, :p99, :p999, :max),
        **(figures[:refused].zero? ? {} : figures.slice(:bare, :refused_p50, :refused_p99)),
        **(figures[:refused_later].zero? ? {} : figures.slice(:refused_later_p99)),
        **(@calm ? figures.slice(:calm_offered, :calm_answered, :calm_failed, :recovered) : {})
      }
    end

    # One load at a given rate.
    #
    # @return [Hash{Symbol => Numeric}] what open_loop.c prints.
    def ask(server, rate, seconds)
      output, status = Open3.capture2(
        NativeProgram.path("open_loop"), server.port.to_s, @path, rate.to_s, seconds.to_s, @connections.to_s,
        @patience.to_s, "1", @calm.to_f.to_s, (@calm ? CALM_SECONDS : 0).to_s, NORMAL_SECONDS.to_s,
        @keep_alive ? "1" : "0"
      )
      raise Wrk::Failed, "the load generator failed" unless status.success?

      JSON.parse(output, symbolize_names: true)
    end

    private

    def capacity(server)
      Wrk.new(connections: CAPACITY_CONNECTIONS, path: @path).run(server, CAPACITY_SECONDS)
    end
  end
end
