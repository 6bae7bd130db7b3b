# frozen_string_literal: true

require "json"
require "tempfile"

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
    # @param headers [Hash{String => String}] of each request.
    # @param body [Integer, nil] bytes that each request carries, as a POST.
    # @param pipeline [Integer] requests that each connection sends at once.
    def initialize(connections:, threads: 1, timeout: 5, path: "/", headers: {}, body: nil, pipeline: 1)
      @connections = connections
      @threads = threads
      @timeout = timeout
      @path = path
      @headers = headers
      @body = body
      @pipeline = pipeline
    end

    def name = "wrk"

    def description
      [
        "wrk -t#{@threads} -c#{@connections} --timeout #{@timeout}s --latency", "path #{@path}",
        ("#{@headers.size} headers" if @headers.any?), ("a body of #{@body} bytes" if @body),
        ("#{@pipeline} requests at once" if @pipeline > 1)
      ].compact.join(", ")
    end

    # What is compared, and whether more of it is better.
    def main_figure = :requests_per_second

    # @return [Hash{Symbol => Numeric}] see {.parse}.
    # @raise [Failed] when wrk could not run at all.
    def run(server, seconds)
      output = with_script do |script|
        command = [
          "wrk", "--latency", "--threads", @threads.to_s, "--connections", @connections.to_s,
          "--timeout", "#{@timeout}s", "--duration", "#{seconds}s", "--script", script, server.url(@path)
        ]
        IO.popen([*command, err: %i[child out]], &:read)
      end
      raise Failed, "wrk failed: #{output.strip}" unless $?.success?

      figures = self.class.parse(output)
      # What it says of the latency of requests that are sent together is not to be used.
      @pipeline > 1 ? figures.except(:mean, :p50, :p75, :p90, :p99, :p999, :max) : figures
    end

    # Yields the path of the Lua script; one of its own where the requests are not plain.
    def with_script
      return yield REPORT if @headers.empty? && @body.nil? && @pipeline == 1

      Tempfile.create(["wrk", ".lua"]) do |file|
        file.write(lua, "\n", File.read(REPORT))
        file.flush
        yield file.path
      end
    end

    # @return [String] wrk makes the requests of it once, before it measures.
    def lua
      headers = @body ? @headers.merge("X-Length" => @body.to_s) : @headers
      lines = headers.map { |name, value| "wrk.headers[#{name.dump}] = #{value.dump}" }
      lines << "wrk.method = \"POST\"" << "wrk.body = string.rep(\"x\", #{@body})" if @body
      lines << <<~LUA if @pipeline > 1
        local batch
        function init(arguments) batch = string.rep(wrk.format(), #{@pipeline}) end
        function request() return batch end
      LUA
      lines.join("\n")
    end
    private :with_script, :lua

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
