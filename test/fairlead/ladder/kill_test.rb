# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../stalls"

module Fairlead
  # Workers are killed while they hand each other requests: none is answered twice, and lost are only those that the
  # killed one had.
  class KillTest < Test
    include Stalls

    # It notes which process has run which request.
    NOTED = APP.sub("case env", "File.write(\"ran\", \"\#{env[\"HTTP_X_NUMBER\"]} \#{Process.pid}\\n\", mode: \"a\")\n  case env")
    KINDS = %w[/ / / /sleep?0.02 /free?0.03 /held?0.03 /cpu?0.02 /later/held?0.02 /digest].freeze

    def test_nothing_is_answered_twice_and_only_what_the_killed_held_is_lost
      with_server(NOTED, "-w", "3") do |server|
        killed = []
        numbers = Thread::Queue.new
        counter = 0
        lock = Mutex.new
        failures = {}
        ending = false
        clients = Array.new(12) do |index|
          dice = Random.new(index)
          Thread.new do
            connection = nil
            until ending
              number = lock.synchronize { counter += 1 }
              connection ||= HTTPClient.new(server.connect, timeout: 15)
              begin
                check(connection, number, KINDS.sample(random: dice), dice)
                numbers << number
              rescue Fairlead::Stalls::Wrong
                raise
              rescue SystemCallError, EOFError, RuntimeError, NoMethodError => error
                lock.synchronize { failures[number] = [monotonic, error] }
                connection.close
                connection = nil
              end
            end
            connection&.close
          end
        end
        clients.each { |client| client.report_on_exception = false }
        4.times do
          sleep 0.7
          victim = server.worker_pids.sample
          killed << [victim, monotonic]
          server.signal(:KILL, victim)
        end
        sleep 1
        ending = true
        clients.each(&:join)

        ran = File.readlines(server.path("ran")).map { |line| line.split.map(&:to_i) }
        twice = ran.map(&:first).tally.select { |number, times| number.positive? && times > 1 }
        assert_empty twice, "run twice"
        assert_operator numbers.size, :>, 200
        where = ran.to_h
        failures.each do |number, (at, error)|
          assert killed.any? { |_, killed_at| at.between?(killed_at, killed_at + 3) }, "lost without a kill: #{error.inspect}"
          assert_includes killed.map(&:first), where[number], "#{number} ran in a worker that lives" if where[number]
        end
        assert_operator failures.size, :<=, 12 * killed.size
        eventually("all have been replaced") { regular_workers(server).size == 3 }
        eventually("nothing is still coming") { figures(server)[:coming].zero? }
      end
    end

    private

    def check(connection, number, path, dice)
      body = dice.bytes(dice.rand(5000)) if path == "/digest"
      connection.request(body ? "POST" : "GET", path, "X-Number: #{number}", body:)
      answer = connection.response
      raise EOFError unless answer
      raise Wrong, "#{number}: #{answer.status}" unless answer.status == 200
      raise Wrong, "#{number}: another body" if body && answer.body != Digest::SHA256.hexdigest(body)
    end
  end
end
