# frozen_string_literal: true

require "json"
require_relative "native_program"
require_relative "open_loop"
require_relative "wrk"

module Bench
  # Streams that relay a language model, and pages beside them: how long do pages wait, and do all streams get their tokens
  # evenly? One program is the model and all clients of the streams (streams.c). Pages come in an open loop, or from
  # connections that always ask for the next page.
  #
  # Each run first measures pages without streams: a comparison on the same server in the same minute.
  class StreamsBesidePages
    CONNECTIONS = 32
    CAPACITY_SECONDS = 2
    ALONE_SECONDS = 3
    # Between the model's first tokens and the measurement.
    SETTLE_SECONDS = 1
    # Seconds after which a client gives up a page.
    PATIENCE = 2
    STREAM_PATH = "/stream"
    private_constant :CONNECTIONS, :CAPACITY_SECONDS, :ALONE_SECONDS, :SETTLE_SECONDS, :PATIENCE, :STREAM_PATH

    # @param streams [Integer]
    # @param tokens [Numeric] a second, for each stream.
    # @param share [Float, nil] pages a second, as a share of the server's own capacity without streams; nil: as many as the
    #   server can do.
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

    # @return [Hash{Symbol => Numeric}] for pages: requests_per_second, latencies (ms), alone_p99 (without streams), slowdown
    #   (p99 ÷ alone_p99), kept (pages a second ÷ pages a second without streams). For streams: streams (begun),
    #   tokens_per_second, gap_p50 and others (ms between two tokens of a stream), delay_p50 and others (ms from the model to
    #   the client), rate_spread (fastest stream ÷ slowest).
    def run(server, seconds)
      capacity = busy_pages(server, CAPACITY_SECONDS)
      rate = capacity[:requests_per_second] * @share if @share
      alone = pages(server, rate, ALONE_SECONDS)
      memory = server.processes.memory[:pss]
      figures = beside_streams(server) { measured(server) { pages(server, rate, seconds) } }

      figures.merge(
        **compared(figures, alone), **per_stream(figures, memory),
        rate:, requests: [capacity, alone, figures].sum { |part| part[:requests] },
        cpu_per_request: nil # the server's CPU time is that of pages and tokens together
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

    # Without any response, every client has waited for the whole time.
    def busy_pages(server, seconds)
      figures = Wrk.new(connections: CONNECTIONS, timeout: PATIENCE).run(server, seconds)
      none = { p50: seconds * 1000, p99: seconds * 1000, max: seconds * 1000 }
      figures.slice(:requests, :seconds, :errors, :non_2xx, :requests_per_second, :p50, :p99, :max)
        .merge(figures[:requests].zero? ? none : {})
    end

    # @yieldreturn [Hash{Symbol => Numeric}] figures of the pages.
    # @return [Hash{Symbol => Numeric}] these and the figures of the streams.
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

    # Adds the server's CPU time meanwhile, and its memory at the end.
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
