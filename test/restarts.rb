# frozen_string_literal: true

require_relative "strict_client"

module Fairlead
  # Requests at a steady rate while a server is restarted, again and again. Half of the clients keep their connections, half
  # have a new one for each request; each second one asks for what takes 10 ms.
  class Restarts
    APP = <<~RUBY
      run ->(env) do
        sleep 0.01 if env["PATH_INFO"] == "/wait"
        [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
      end
    RUBY

    # @return [Array<StrictClient>]
    attr_reader :clients
    # @return [Float] the requests a second that were answered.
    attr_reader :rate

    def initialize(server, rate:, seconds:, restarts:, clients: 16)
      @server = server
      @seconds = seconds
      @restarts = restarts
      @pause = clients / rate.to_f
      @clients = Array.new(clients) { |number| StrictClient.new(server, keep: number.even?) }
    end

    # @yieldparam server [ServerProcess] restarts it.
    def run
      started = now
      @until = started + @seconds
      threads = @clients.each_with_index.map { |client, number| Thread.new { ask(client, (number % 4) < 2 ? "/" : "/wait") } }
      @restarts.times do |number|
        pause = started + ((number + 0.5) * @seconds / @restarts) - now
        sleep(pause) if pause.positive?
        yield @server
      end
      threads.each(&:join)
      @rate = @clients.sum(&:answers) / (now - started)
      self
    ensure
      @clients.each(&:disconnect)
    end

    def failures = @clients.flat_map(&:failures)

    private

    def ask(client, path)
      due = now
      while due < @until
        client.request(path)
        due += @pause
        pause = due - now
        sleep(pause) if pause.positive?
      end
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
