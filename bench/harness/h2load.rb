# frozen_string_literal: true

require "open3"
require_relative "tls"
require_relative "wrk"

module Bench
  # Closed-loop load over HTTP/2: each connection has so many requests under way at any time.
  class H2load
    attr_reader :connections

    # @param streams [Integer] requests that each connection has under way.
    def initialize(connections:, streams:, path: "/")
      @connections = connections
      @streams = streams
      @path = path
    end

    def name = "h2load"

    def description = "h2load -c#{@connections} -m#{@streams}, path #{@path}"

    def main_figure = :requests_per_second

    # @return [Hash{Symbol => Numeric}] see {.parse}.
    # @raise [Wrk::Failed] when h2load could not run, or the server does not speak HTTP/2.
    def run(server, seconds)
      command = ["h2load", "--clients=#{@connections}", "--max-concurrent-streams=#{@streams}", "--duration=#{seconds}",
        "--sni=#{TLS::NAME}", server.url(@path)]
      output, status = Open3.capture2e(*command)
      raise Wrk::Failed, "h2load failed: #{output.strip}" unless status.success?

      self.class.parse(output).merge(seconds:)
    end

    # Latencies are in milliseconds; h2load has no percentiles. Only answers with a status of 200 to 399 are good ones.
    #
    # @param output [String] all that h2load printed.
    # @return [Hash{Symbol => Numeric}]
    # @raise [Wrk::Failed] when something else than HTTP/2 was spoken.
    def self.parse(output)
      spoken = output[/^Application protocol: (\S+)/, 1]
      raise Wrk::Failed, "h2load spoke #{spoken || "with nobody"}: #{output.strip}" unless spoken&.start_with?("h2")

      good, errors = output.match(/^requests: .* (\d+) succeeded, .* (\d+) errored, /)&.captures&.map(&:to_i)
      codes = output[/^status codes: (.*)/, 1].to_s.scan(/(\d+) \dxx/).flatten.map(&:to_i)
      raise Wrk::Failed, "h2load printed no report: #{output.strip}" unless good && codes.size == 4

      _, max, mean = output[/^time for request: +(.*)/, 1].split.first(3).map { |time| milliseconds(time) }
      {
        requests: codes.sum, requests_per_second: output[/^finished in .*, ([\d.]+) req\/s/, 1].to_f * (good.fdiv([codes.sum, 1].max)),
        errors:, non_2xx: codes.last(2).sum, mean:, max:
      }
    end

    def self.milliseconds(text)
      number, unit = text.match(/([\d.]+)(us|ms|s)/).captures
      number.to_f * { "us" => 0.001, "ms" => 1, "s" => 1000 }.fetch(unit)
    end
    private_class_method :milliseconds
  end
end
