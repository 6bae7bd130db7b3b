# frozen_string_literal: true

require "json"
require "net/http"
require "open3"
require "tmpdir"
require_relative "../bench/harness/free_port"

module Fairlead
  # For tests of the metrics: reads them as Prometheus does, and starts a real one.
  module Scraping
    OPEN_METRICS = { "accept" => "application/openmetrics-text;version=1.0.0" }.freeze
    private_constant :OPEN_METRICS

    # @return [URI] of the metrics, as the server says at its start.
    def metrics_of(server) = URI(server.log[/^  metrics +(\S+)/, 1])

    # @return [Net::HTTPResponse]
    def scrape(server, headers = {}) = Net::HTTP.get_response(metrics_of(server), headers)

    # @return [Net::HTTPResponse]
    def scrape_open_metrics(server) = scrape(server, OPEN_METRICS)

    # @return [Hash{String => Float}] sample, as in the text => value
    def figures(server) = parse(scrape(server).body)

    def parse(text) = text.lines.grep_v(/^#/).to_h { |line| line.chomp.rpartition(" ").then { |name, _, value| [name, Float(value)] } }

    # A Prometheus that scrapes a server four times a second.
    class Prometheus
      # @param uri [URI] of the metrics.
      def initialize(uri)
        @folder = Dir.mktmpdir("fairlead-prometheus-")
        @port = Bench::FreePort.find
        job = { job_name: "fairlead", metrics_path: uri.path, static_configs: [{ targets: ["#{uri.host}:#{uri.port}"] }] }
        File.write(File.join(@folder, "prometheus.yml"), JSON.generate(global: { scrape_interval: "250ms" }, scrape_configs: [job])) # JSON is YAML
        @log = File.join(@folder, "log")
        @pid = Process.spawn("prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
                             "--web.listen-address=127.0.0.1:#{@port}", chdir: @folder, in: File::NULL, out: @log, err: @log)
      end

      # @return [String, nil] the first value of a query's result; nil: it has none, or Prometheus does not answer yet.
      def query(expression) = answer(expression).dig("data", "result", 0, "value", 1)

      # @return [Hash] what Prometheus answers to a query; empty: nothing yet.
      def answer(expression)
        JSON.parse(Net::HTTP.get(URI("http://127.0.0.1:#{@port}/api/v1/query?#{URI.encode_www_form(query: expression)}")))
      rescue SystemCallError, EOFError, JSON::ParserError
        {}
      end

      def log = File.read(@log)

      def stop
        Process.kill(:KILL, @pid)
        Process.wait(@pid)
        FileUtils.remove_entry(@folder)
      end
    end
  end
end
