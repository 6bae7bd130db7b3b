# frozen_string_literal: true

require "json"
require_relative "native_program"
require_relative "open_loop"
require_relative "wrk"

module Bench
  # Streams that relay a language model, and pages beside them: how long do pages wait, and do all streams get their tokens
  # evenly? The model and the clients of the streams are one program, see streams.c; the pages come in an open loop, or from
  # connections that always have the next request.
  #
  # In each run, pages are measured without streams first, so that both figures are of the same server in the same minute.
  class StreamsBesidePages
    CONNECTIONS = 32
    CAPACITY_SECONDS = 2
    ALONE_SECONDS = 3
    # The model sends for so long before anything is counted.
    SETTLE_SECONDS = 1
    # Whoever waits for a page for longer gives up.
    PATIENCE = 2
    STREAM_PATH = "/stream"
    private_constant :CONNECTIONS, :CAPACITY_SECONDS, :ALONE_SECONDS, :SETTLE_SECONDS, :PATIENCE, :STREAM_PATH

    # @param streams [Integer]
    # @param tokens [Numeric] that the model sends a second, to each stream.
    # @param share [Float, nil] pages that come, of what the server can do without streams, which is measured first; nil: as
    #   many as it can do.
    def initialize(streams:, tokens: 0, share: nil)
      @streams = streams
      @tokens = tokens
      @share = share
    end

    def name = "streams"

    def connections = @streams

    def description
      pages = @share ? "open loop at #{(@share * 100).round} % of the server's own capacity" : "#{CONNECTIONS} busy connections"
      "#{@streams} streams of #{@tokens} tokens a second each, beside pages: #{pages}"
    end

    def main_figure = :p99

    # @return [Numeric] seconds, about.
    def duration(seconds) = CAPACITY_SECONDS + ALONE_SECONDS + SETTLE_SECONDS + seconds + (@streams / 1_000)

    # @return [Hash{Symbol => Numeric}] of pages: requests_per_second, latencies (ms), alone_p99 (without streams), slowdown
    #   (p99 by that), kept (pages a second by those without streams). Of streams: streams (that have begun),
    #   tokens_per_second, gap_p50 and so on (ms between two tokens of a stream), delay_p50 and so on (ms from the model to
    #   the client), rate_spread (the fastest stream by the slowest).
    def run(server, seconds)
      capacity = busy_pages(server, CAPACITY_SECONDS)
      rate = capacity[:requests_per_second] * @share if @share
      alone = pages(server, rate, ALONE_SECONDS)
      memory = server.processes.memory[:pss]
      figures = beside_streams(server) { measured(server) { pages(server, rate, seconds) } }

      figures.merge(
        **compared(figures, alone), **per_stream(figures, memory),
        rate:, requests: [capacity, alone, figures].sum { |part| part[:requests] },
        # Of pages and tokens together it would say nothing.
        cpu_per_request: nil
      )
    end

    private

    def pages(server, rate, seconds)
      return busy_pages(server, seconds) unless rate

      figures = OpenLoop.new(rate:, patience: PATIENCE).ask(server, rate, seconds)
      {
        requests: figures.values_at(:answered, :refused, :wrong).sum, seconds:,
        errors: figures.values_at(:failed, :gave_up).sum, non_2xx: figures.values_at(:wrong, :refused).sum,
        requests_per_second: figures[:in_time].fdiv(seconds),
        p50: figures[:waited_p50], p99: figures[:waited_p99], max: [figures[:max], figures[:waited_p99]].max
      }
    end

    # Where none was answered, all have waited for the whole time.
    def busy_pages(server, seconds)
      figures = Wrk.new(connections: CONNECTIONS, timeout: PATIENCE).run(server, seconds)
      none = { p50: seconds * 1000, p99: seconds * 1000, max: seconds * 1000 }
      figures.slice(:requests, :seconds, :errors, :non_2xx, :requests_per_second, :p50, :p99, :max)
        .merge(figures[:requests].zero? ? none : {})
    end

    # @yieldreturn [Hash{Symbol => Numeric}] what is measured while the model sends.
    # @return [Hash{Symbol => Numeric}] that, with the figures of the streams.
    def beside_streams(server)
      return yield if @streams.zero?

      command = [NativeProgram.path("streams"), server.port, STREAM_PATH, @streams, @tokens]
      IO.popen(command.map(&:to_s), "r+") do |program|
        program.sync = true
        program.gets or raise Wrk::Failed, "the streams failed"
        program.write("g")
        sleep SETTLE_SECONDS
        program.write("c")
        figures = yield
        program.write("e")
        figures.merge(stream_figures(JSON.parse(program.gets, symbolize_names: true), figures))
      end
    end

    def stream_figures(found, pages)
      {
        **found.slice(:gap_p50, :gap_p99, :gap_max, :delay_p50, :delay_p99, :held_back),
        streams: found[:begun], tokens_per_second: found[:tokens] / found[:seconds],
        rate_spread: (found[:fastest] / found[:slowest] if found[:begun].positive?),
        errors: pages[:errors] + found[:closed]
      }
    end

    # The CPU time and the memory of the server meanwhile.
    def measured(server)
      clock = -> { [server.processes.cpu, Process.clock_gettime(Process::CLOCK_MONOTONIC)] }
      cpu, started = clock.call
      figures = yield
      cpu_after, ended = clock.call
      { **figures, cores: (cpu_after - cpu) / (ended - started), pss: server.processes.memory[:pss] }
    end

    def compared(figures, alone)
      {
        alone_p99: alone[:p99], slowdown: figures[:p99] / alone[:p99],
        kept: (figures[:requests_per_second] / alone[:requests_per_second] unless @share)
      }
    end

    def per_stream(figures, memory_before)
      return {} unless figures[:streams]&.positive?

      { kilobytes_each: (figures[:pss] - memory_before) * 1024 / figures[:streams] }
    end
  end
end
