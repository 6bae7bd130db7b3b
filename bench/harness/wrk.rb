# frozen_string_literal: true

require "json"

module Bench
  # Closed-loop load: a fixed number of connections, each of which sends its next request once it has its
  # answer.
  class Wrk
    Failed = Class.new(StandardError)

    REPORT = File.expand_path("wrk_report.lua", __dir__)
    private_constant :REPORT

    attr_reader :connections

    # @param timeout [Integer] seconds after which wrk counts an answer as an error.
    # @param path [String] what is asked for.
    def initialize(connections:, threads: 1, timeout: 5, path: "/")
      @connections = connections
      @threads = threads
      @timeout = timeout
      @path = path
    end

    def name = "wrk"

    def description
      "wrk -t#{@threads} -c#{@connections} --timeout #{@timeout}s --latency, path #{@path}"
    end

    # What is compared, and whether more of it is better.
    def main_figure = :requests_per_second

    # @return [Hash{Symbol => Numeric}] see {.parse}.
    # @raise [Failed] when wrk could not run at all.
    def run(server, seconds)
      command = [
        "wrk", "--latency", "--threads", @threads.to_s, "--connections", @connections.to_s,
        "--timeout", "#{@timeout}s", "--duration", "#{seconds}s", "--script", REPORT, server.url(@path)
      ]
      output = IO.popen([*command, err: %i[child out]], &:read)
      raise Failed, "wrk failed: #{output.strip}" unless $?.success? # rubocop:disable Style/SpecialGlobalVars

      self.class.parse(output)
    end

    # Latencies are in milliseconds. An answer with a status of 400 or more is no good answer: it counts among
    # non_2xx (wrk counts no redirects there) and not among the requests per second.
    #
    # @param output [String] all that wrk printed, with the report's line.
    # @return [Hash{Symbol => Numeric}]
    def self.parse(output)
      line = output[/^report (\{.*\})$/, 1] or raise Failed, "wrk printed no report: #{output.strip}"
      report = JSON.parse(line, symbolize_names: true)
      seconds = report[:microseconds] / 1e6
      good = report[:requests] - report[:status]

      {
        requests: report[:requests], seconds:, requests_per_second: good / seconds,
        errors: report.values_at(:connect, :read, :write, :timeout).sum, non_2xx: report[:status],
        **report.slice(:connect, :read, :write, :timeout),
        **report.slice(:mean, :p50, :p75, :p90, :p99, :p999, :max).transform_values { |value| value / 1000.0 }
      }
    end
  end
end
