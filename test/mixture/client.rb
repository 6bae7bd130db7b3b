# frozen_string_literal: true

require "digest"
require_relative "../http_client"

module Fairlead
  class Mixture
    # One client of the mixture: it sends requests of all kinds, some of them slowly, or several at once; it reads slowly at
    # times, and goes at times without its answer.
    class Client
      # Not the answer to its request.
      Wrong = Class.new(StandardError)
      # What a request does, and how often: some routes are known to stall before long, others are new each time.
      KINDS = {
        "/" => 4, "/sleep" => 4, "/database" => 5, "/later/database" => 1, "/digest" => 2, "/large" => 2, "/parts" => 2,
        "/free" => 2, "/held" => 2, "/cpu" => 2, "/later/free" => 1, "/later/held" => 1, "/later/cpu" => 1,
        "/free/~" => 1, "/held/~" => 1, "/cpu/~" => 1, "/later/free/~" => 1, "/later/held/~" => 1, "/later/cpu/~" => 1
      }.flat_map { |kind, weight| [kind] * weight }.freeze
      # Seconds that a request without an answer is waited for: more than the longest pause before a worker is forked anew.
      PATIENCE = 60
      # So often, in seconds, and for so long, all ask for what holds the lock: there is nobody left who could serve.
      STORM, STORM_LASTS = 15, 0.3
      private_constant :KINDS, :PATIENCE, :STORM, :STORM_LASTS

      # @param server [ServerProcess]
      # @param ledger [Ledger]
      # @param dice [Random]
      def initialize(server, ledger, dice)
        @server = server
        @ledger = ledger
        @dice = dice
      end

      # @yieldreturn [Boolean] whether no other request shall begin.
      def run
        until yield
          converse
          sleep(@dice.rand * 0.1)
        end
        @connection&.close
      end

      private

      # One request, or some behind each other on one connection.
      def converse
        connect unless @connection
        exchange(Array.new(one_in(6) ? @dice.rand(2..4) : 1) { new_request })
      end

      def connect
        @since = now
        @connection = HTTPClient.new(@server.connect, timeout: PATIENCE)
        @port = @connection.socket.local_address.ip_port
      end

      def exchange(requests)
        send_all(requests)
        return leave(requests) if one_in(12)

        receive(requests.first) && requests.shift until requests.empty?
        end_silently if one_in(20)
      rescue EOFError, SystemCallError => error
        requests.each do |request|
          followed = !request.equal?(requests.last)
          note(request, :lost, detail: error.inspect, port: @port, since: @since, followed:)
        end
        drop
      rescue Wrong, RuntimeError => error
        outcome = error.is_a?(Wrong) ? :wrong : :silent
        note(requests.shift, outcome, detail: error.message)
        requests.each { |request| note(request, :left) }
        drop
      end

      def new_request
        storm = now % STORM < STORM_LASTS
        kind = storm ? "/held/~" : KINDS.sample(random: @dice)
        seconds = storm || one_in(10) ? 0.3 + @dice.rand * 0.7 : @dice.rand * 0.1
        body = @dice.bytes(@dice.rand(one_in(4) ? 200_000 : 5_000)) if kind == "/digest"
        { number: @ledger.next_number, kind:, body:, path: "#{kind}#{word if kind.end_with?("~")}?#{seconds.round(3)}" }
      end

      # Letters that no route has had so far.
      def word = Array.new(12) { @dice.rand(97..122).chr }.join

      # Where the connection has ended meanwhile, the first may have been answered all the same.
      def send_all(requests)
        bytes = requests.map { |request| bytes_of(request) }.join
        return @connection.write_as_taken(bytes) unless one_in(10)

        # A slow client: its request comes in pieces.
        size = [bytes.bytesize / 8, 1].max
        until bytes.empty?
          @connection.write_as_taken(bytes.slice!(0, size))
          sleep(@dice.rand * 0.05)
        end
      end

      def bytes_of(request)
        head = "#{request[:body] ? "POST" : "GET"} #{request[:path]} HTTP/1.1\r\nHost: a\r\nX-Number: #{request[:number]}\r\n"
        body = request[:body] or return "#{head}\r\n".b
        return "#{head}Content-Length: #{body.bytesize}\r\n\r\n".b << body unless one_in(2)

        "#{head}Transfer-Encoding: chunked\r\n\r\n#{body.bytesize.to_s(16)}\r\n".b << body << (body.empty? ? "\r\n" : "\r\n0\r\n\r\n")
      end

      def leave(requests)
        sleep(@dice.rand * 0.2) if one_in(2)
        one_in(2) ? @connection.reset : @connection.close
        @connection = nil
        requests.each { |request| note(request, :left) }
      end

      def receive(request)
        sleep(@dice.rand * 0.5) if request[:kind] == "/large" && one_in(2) # a slow reader
        answer = @connection.response or raise EOFError, "the connection has ended"
        check(request, answer)
        note(request, :answered, process: answer["x-process"].to_i)
      end

      def check(request, answer)
        raise Wrong, "status #{answer.status}: #{answer.body[0, 100]}" unless answer.status == 200
        raise Wrong, "the answer to #{answer["x-number"]}" unless answer["x-number"] == request[:number].to_s
        raise Wrong, "another body: #{answer.body[0, 100]}" unless answer.body == expected(request)
      end

      def expected(request)
        number = request[:number]
        case request[:kind]
        when "/digest" then Digest::SHA256.hexdigest(request[:body])
        when "/large" then number.to_s.rjust(10, "0") * 50_000
        when "/parts" then Array.new(5) { |part| "#{number}:#{part};" * 200 }.join
        else number.to_s
        end
      end

      def note(request, outcome, **) = @ledger.note(request[:number], outcome, request[:path], **)

      # Nothing may come after the last answer.
      def end_silently
        @ledger.complain("something came after the last answer") unless @connection.silent?(0.02) || @connection.eof?
        drop
      end

      def drop
        @connection&.close
        @connection = nil
      end

      def one_in(count) = @dice.rand(count).zero?

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
