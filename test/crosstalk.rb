# frozen_string_literal: true

require "json"
require "rbconfig"
require_relative "crosstalk/app"
require_relative "crosstalk/client"
require_relative "crosstalk/streams"
require_relative "sanitizer"
require_relative "server_process"

module Fairlead
  # Nobody gets bytes of another: responses that are nothing but their request's token, in every way there is, while the app's
  # threads write to streams that end, clients vanish, requests run out of time, workers hand over, and objects move.
  class Crosstalk
    CWORK = File.expand_path("../examples/cwork/lib", __dir__)
    FLAGS = (%w[--workers 2 --request-timeout 0.6 --cancel-abandoned --early-hints --bind http://127.0.0.1:0] + SpeaksHTTPS::FLAGS).freeze
    # Those that ask, and the connections of each.
    PROCESSES = 2
    CLIENTS = 8
    MOST_ROUNDS = 6
    # What a server says only of its own faults.
    BROKEN = /\[BUG\]|AddressSanitizer|ended unexpectedly|Segmentation fault|SIGSEGV|SIGABRT/
    private_constant :FLAGS, :PROCESSES, :CLIENTS, :MOST_ROUNDS, :BROKEN

    # @return [Array<String>] what was not as it should be; known after {#run}.
    attr_reader :faults
    # @return [Integer] requests that one worker has handed to the other.
    attr_reader :handed
    # @return [Hash{String => Integer}] responses by their status; "cut" and "left": connections that the server or the client
    #   has ended before.
    attr_reader :outcomes

    # @param over [String, nil] the protocol that its clients negotiate over TLS, "http/1.1" or "h2"; nil: HTTP/1 in the clear.
    # @param least [Integer] responses, and a hand-over: a slow machine gets more time for them.
    # @param sanitized [Boolean] whether the extension is the one under AddressSanitizer.
    def initialize(seconds:, over: nil, least: 0, sanitized: false, seed: 1)
      @seconds = seconds
      @least = least
      @over = over
      @sanitized = sanitized
      @seed = seed
      @outcomes = Hash.new(0)
      @faults = []
    end

    # @return [self]
    def run
      serve do |server|
        before = server.worker_pids
        MOST_ROUNDS.times do
          ask(server)
          @handed = Integer(answer(server, "/handed"), 10)
          break if @least.zero? || (answered > @least && @handed.positive?)
        end
        @faults << "The workers #{before} are #{server.worker_pids} now" unless (before - server.worker_pids).empty?
        @faults << "No answer: #{server.end_of_log}" unless answer(server, "/fixed?T0000000000&1") == "T0000000000"
      end
      self
    end

    def answered = @outcomes.values_at("200", "503", "504").sum

    def to_s = "#{answered} responses: #{@outcomes.sort.map { |outcome, count| "#{count} #{outcome}" }.join(", ")}; #{@handed} handed over; #{@faults.size} faults"

    private

    def serve
      env = { "CWORK" => CWORK, "RACK_ENV" => "production", **(@sanitized ? Sanitizer.env : {}) }
      ruby_flags = @sanitized ? Sanitizer::FLAGS : []
      server = ServerProcess.new(APP, *FLAGS, env:, ruby_flags:, files: SpeaksHTTPS::FILES, lint: false, timeout: 120).start.wait_until_ready
      yield server
      server.stop
      @faults.concat(server.log.lines.grep(BROKEN).first(5))
      @faults << server.end_of_log if server.log.match?(BROKEN)
    ensure
      server&.finish
    end

    # Processes of their own: one alone would be slower than the server.
    def ask(server)
      scheme = @over ? "https" : "http"
      port = server.addresses.map { |address| URI(address) }.find { |address| address.scheme == scheme }.port
      askers = Array.new(PROCESSES) { |number| IO.popen("-") || report(server, port, number) }
      askers.each do |asker|
        outcomes, faults = JSON.parse(asker.read)
        @outcomes.update(outcomes) { |_, one, other| one + other }
        @faults.concat(faults)
        asker.close
      end
    end

    # In the process that asks.
    def report(server, port, number)
      ends = Process.clock_gettime(Process::CLOCK_MONOTONIC) + @seconds
      kind = @over == "h2" ? Streams : Client
      first = Thread::Mutex.new
      state = -> { state_of(server) if first.try_lock }
      clients = Array.new(CLIENTS) do |index|
        Thread.new { kind.new(port, (@seed * 1000) + (number * CLIENTS) + index, protocol: @over, &state).run(ends) }
      end.map(&:value)
      outcomes = clients.map(&:outcomes).reduce { |sum, one| sum.merge(one) { |_, before, more| before + more } }
      $stdout.write(JSON.generate([outcomes, clients.flat_map(&:faults).first(20).map(&:scrub)]))
      $stdout.flush
    ensure
      exit!
    end

    # What remains of the run may take a request's time.
    def answer(server, path)
      response = nil
      20.times { return response.body if (response = server.get(path)).code == "200" }
      raise "GET #{path}: #{response.code} #{response.body}\n#{state_of(server)}\n#{server.end_of_log}"
    end

    # What it says of itself.
    def state_of(server)
      %w[status slow stalls].map do |command|
        fairlead = [RbConfig.ruby, "-I", File.join(ServerProcess::ROOT, "lib"), File.join(ServerProcess::ROOT, "exe/fairlead"), command]
        IO.popen([*fairlead, { chdir: server.directory, err: %i[child out] }], &:read)
      end.join("\n")
    end
  end
end
