# frozen_string_literal: true

require "net/http"
require_relative "wrk"

module Bench
  # Connections that stay with their workers, while requests go to whoever would serve them soonest: beside latencies,
  # how many of them were handed to another worker for that. The app says how many there have been so far, at /handed.
  class Turns < Wrk
    # (see Wrk#run)
    def run(server, seconds)
      before = handed(server)
      figures = super
      { **figures, handed: (handed(server) - before).fdiv([figures[:requests], 1].max) }
    end

    # What is compared.
    def main_figure = :p99

    private

    def handed(server) = Integer(Net::HTTP.get(URI(server.url("/handed"))), 10)
  end
end
