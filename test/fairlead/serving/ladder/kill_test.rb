# frozen_string_literal: true

require_relative "../../../helper"
require_relative "../../../stalls"

module Fairlead
  # Workers are killed while they hand each other requests: none is answered twice, and lost are only those whose
  # connections the killed one held. What nobody has accepted yet, and what is on its way over a socket pair, the supervisor
  # holds too: none of that may be lost.
  class KillTest < Test
    include Stalls

    KINDS = %w[/ / / /sleep?0.02 /free?0.03 /held?0.03 /cpu?0.02 /later/held?0.02 /digest].freeze
    # @!attribute ports [Array<Integer>] the clients' ends of the connections that it held.
    Kill = Struct.new(:pid, :ports, :at)
    Loss = Struct.new(:number, :path, :port, :opened_at, :at, :error) do
      # A port may be used again: it has to be the connection of that time.
      def by?(kill) = kill.ports.include?(port) && kill.at.between?(opened_at, at)
    end
    private_constant :KINDS, :Kill, :Loss

    def test_nothing_is_answered_twice_and_only_what_the_killed_held_is_lost
      with_server(APP, "-w", "3", "--queue-target", "0") do |server| # nobody is turned away
        kills = []
        losses = while_all_ask(server) do
          4.times do
            eventually_answered
            kills << kill(server, server.worker_pids.sample)
          end
          eventually_answered
        end

        refute_match(/\[BUG\]/, server.log)
        runs = runs(server)
        assert_empty runs.reject { |_, pids| pids.size == 1 }, "run twice"
        refute_empty losses
        losses.each do |loss|
          # The last one: of a connection that moves, both workers have a descriptor for a moment.
          kill = kills.reverse.find { |candidate| loss.by?(candidate) }
          assert kill, "#{loss}: nobody was killed that held its connection, but #{kills}; it ran in #{runs[loss.number]}"
          assert_includes [nil, [kill.pid]], runs[loss.number], "#{loss}: it ran elsewhere"
        end
        eventually("all have been replaced") { regular_workers(server).size == 3 }
        eventually("nothing is still coming") { figures(server)[:incoming_requests].zero? }
      end
    end

    private

    # It stands still from when it is known what it holds: what others send it meanwhile stays on its way.
    def kill(server, pid)
      ports = HeldConnections.of(pid)
      sleep 0.05
      Kill.new(pid, ports, monotonic).tap { server.signal(:KILL, pid) }
    end

    # Hundreds of requests more.
    def eventually_answered
      answered = -> { @clients.sum { |client| client[:answered].to_i } }
      before = answered.call
      eventually("they are answered") { answered.call > before + 300 || @clients.any? { |client| !client.alive? } }
    end

    # @return [Array<Loss>] the requests that were not answered.
    def while_all_ask(server)
      @over = false
      @clients = Array.new(12) { |index| Thread.new { ask(server, index * 10_000, Random.new(index)) } }
      @clients.each { |client| client.report_on_exception = false }
      yield
      @over = true
      @clients.flat_map(&:value)
    ensure
      @over = true
    end

    # One client, on one connection after the other.
    def ask(server, number, dice)
      losses = []
      until @over
        opened_at = monotonic
        client = HTTPClient.new(server.connect)
        port = client.socket.local_address.ip_port
        path = nil
        begin
          until @over
            exchange(client, number += 1, path = KINDS.sample(random: dice), dice)
            Thread.current[:answered] = Thread.current[:answered].to_i + 1
          end
        rescue SystemCallError, EOFError => error
          losses << Loss.new(number, path, port, opened_at, monotonic, error)
        ensure
          client.close
        end
      end
      losses
    end

    def exchange(client, number, path, dice)
      body = dice.bytes(dice.rand(5000)) if path == "/digest"
      client.request(body ? "POST" : "GET", path, "X-Number: #{number}", body:)
      answer = client.response or raise EOFError
      raise Wrong, "#{number}: #{answer.status}" unless answer.status == 200

      its_own = body ? answer.body == Digest::SHA256.hexdigest(body) : answer["x-number"] == number.to_s
      raise Wrong, "#{number}: another's answer" unless its_own
    end
  end
end
