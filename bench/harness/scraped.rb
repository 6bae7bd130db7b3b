# frozen_string_literal: true

require "net/http"
require "socket"
require_relative "wrk"

module Bench
  # A reader of the server's metrics, ten times a second. Beside busy connections: what do these lose? Each run first measures them
  # without the reader: a comparison on the same server in the same minute. Beside a request that keeps each worker: how long do reads
  # take?
  class Scraped
    INTERVAL = 0.1
    CONNECTIONS = 32
    # Seconds until a read counts as failed.
    PATIENCE = 10
    # Seconds until the requests that keep the workers have begun.
    LEAD = 0.3
    private_constant :INTERVAL, :CONNECTIONS, :PATIENCE, :LEAD

    # @param keeping [String, nil] the path of the request that keeps a worker; nil: busy connections ask for "/".
    def initialize(keeping = nil)
      @keeping = keeping
    end

    def name = "scraped"

    def connections = @keeping ? 1 : CONNECTIONS

    def description
      beside = @keeping ? "#{@keeping} in each worker" : "#{CONNECTIONS} busy connections"
      "metrics read every #{(INTERVAL * 1000).round} ms, beside #{beside}"
    end

    def main_figure = @keeping ? :p99 : :requests_per_second

    # @return [Numeric] seconds, about.
    def duration(seconds) = @keeping ? seconds + LEAD : 2 * seconds

    # @return [Hash{Symbol => Numeric}] of busy connections what {Wrk} says, and kept (requests a second ÷ those without the reader),
    #   slowdown (p99 ÷ that without), and scrape_p50 and scrape_p99. Beside requests that keep the workers, p50, p99 and max are those of
    #   reads. All in ms.
    def run(server, seconds) = @keeping ? beside_kept_workers(server, seconds) : beside_busy_connections(server, seconds)

    private

    def beside_busy_connections(server, seconds)
      wrk = Wrk.new(connections: CONNECTIONS)
      alone = wrk.run(server, seconds)
      beside = nil
      reads = while_reading(server) { beside = wrk.run(server, seconds) }
      {
        **beside, errors: beside[:errors] + reads.count(nil), kept: beside[:requests_per_second] / alone[:requests_per_second],
        slowdown: beside[:p99] / alone[:p99], scrape_p50: quantile(reads, 0.5), scrape_p99: quantile(reads, 0.99)
      }
    end

    def beside_kept_workers(server, seconds)
      clients = Array.new(server.workers) { keep(server) }
      sleep LEAD
      reads = while_reading(server) { sleep seconds - LEAD }
      {
        requests: reads.size, seconds:, requests_per_second: reads.compact.size.fdiv(seconds), errors: reads.count(nil), non_2xx: 0,
        p50: quantile(reads, 0.5), p99: quantile(reads, 0.99), max: quantile(reads, 1)
      }
    ensure
      clients&.each(&:close)
    end

    def keep(server)
      TCPSocket.new("127.0.0.1", server.port).tap { |client| client.write("GET #{@keeping} HTTP/1.1\r\nHost: bench\r\n\r\n") }
    end

    # @return [Array<Float, nil>] milliseconds of each read; nil: it failed. One that is late makes the next ones late, but is not left
    #   out: each counts from when it was due.
    def while_reading(server)
      ended = false
      reader = Thread.new { read_until(server.metrics) { ended } }
      yield
      ended = true
      reader.value
    end

    def read_until(uri)
      due = now
      reads = []
      until yield
        reads << read(uri, due)
        due += INTERVAL
        sleep([due - now, 0].max)
      end
      reads
    end

    def read(uri, due)
      answer = Net::HTTP.start(uri.host, uri.port, open_timeout: PATIENCE, read_timeout: PATIENCE) { |http| http.get(uri.path) }
      (now - due) * 1000 if answer.is_a?(Net::HTTPOK) && answer.body.include?("# TYPE")
    rescue SystemCallError, IOError, Timeout::Error
      nil
    end

    def quantile(reads, part)
      times = reads.map { |time| time || (PATIENCE * 1000) }.sort
      times[((times.size - 1) * part).ceil]
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
