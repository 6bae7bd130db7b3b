# frozen_string_literal: true

require_relative "../../../helper"
require_relative "../../../stalls"

module Fairlead
  # A worker that a request keeps from its loop for too long is replaced; nobody else notices.
  class StuckTimeoutTest < Test
    include SpeaksHTTP
    include Stalls

    LIMITS = %w[--stuck-timeout 0.6 --drain-timeout 0.4].freeze

    # What the log says of each kind.
    KINDS = { "/held" => "has been in a call that holds Ruby's lock", "/free" => "has been in a call that blocks",
              "/c" => "has been computing", "/cpu" => "has been computing" }.freeze

    # Asks again and again, on new connections, until the block is done.
    def while_others_ask(server)
      over = false
      failed = []
      asker = Thread.new do
        until over
          response = server.get("/")
          failed << response.code if response.code != "200"
        end
      end
      yield
    ensure
      over = true
      asker.value
      assert_empty failed
    end

    # A request may be served by the sibling of the worker that it came to. Where the machine stands still for as long as the option
    # says, other workers are replaced too, in the name of what they serve then.
    #
    # @return [Integer] which process has gone.
    def await_end(server, what)
      pid = nil
      eventually("a worker is replaced") { pid = server.log[/Worker \d \(process (\d+)\) is being replaced: for \S+ s \(stuck_timeout\) #{what}/, 1] }
      eventually("it has gone", within: 20) { !server.worker_pids.include?(pid.to_i) }
      pid.to_i
    rescue Minitest::Assertion => error
      raise error, "#{error.message}:\n#{server.log}"
    end

    def test_it_is_replaced_and_killed_and_nobody_else_is_harmed
      KINDS.each do |path, words|
        with_server(APP, "-w", "2", *LIMITS) do |server|
          clients = client_of_each(server)
          stuck = client(to: server, timeout: 30)
          victim = nil
          while_others_ask(server) do
            stall(server, path, 30, on: stuck)
            victim = await_end(server, "GET #{path}/~")
          end
          assert_equal 503, stuck.response.status
          assert_predicate stuck, :eof?
          # Its own idle connection has gone to the sibling.
          answers = clients.values.map { |other| other.get("/") }
          assert_equal [200, 200], answers.map(&:status)
          refute_includes answers.map { |answer| answer.body.to_i }, victim
          eventually("there are two again") { server.worker_pids.size == 2 }
          assert_match(/ \(stuck_timeout\) GET \S+ #{words}\.$/, server.log)
          assert_includes server.log, "(process #{victim}) does not end: it is killed"
          assert_equal 1, server.log.scan("(process #{victim}) is being replaced").size
        end
      end
    end

    def test_a_thread_that_serves_nothing_and_keeps_the_lock_for_ever_is_ended_with_its_worker
      with_server(APP, "-w", "1", *LIMITS) do |server|
        victim = server.worker_pids.first
        assert_equal "200", server.get("/thread?60").code
        eventually("it has begun") { File.exist?(server.path("begun-thread")) }
        # The thread takes the lock a moment after it has written its note: until then this worker answers.
        answers = []
        answers << client(to: server, timeout: 20).get("/") until answers.any? && answers.last.body.to_i != victim
        assert_each_equal 200, answers, server, &:status
        assert_equal victim, await_end(server, "a thread in it has been in a call that holds Ruby's lock\\.")
        assert_equal "200", server.get("/").code
      end
    end

    def test_one_that_comes_back_in_time_answers_and_is_not_killed
      with_server(APP, "-w", "2", "--stuck-timeout", "0.6", "--drain-timeout", "20") do |server|
        KINDS.each_key do |path|
          workers = server.worker_pids
          assert_equal 200, stall(server, path, 1.5).response.status
          eventually("one is replaced") { server.worker_pids.size == 2 && (server.worker_pids - workers).any? }
        end
        refute_match(/killed/, server.log)
      end
    end

    # Two requests run at once: one is stuck, one is suspended in its worker, and a third one waits for its turn there.
    def test_one_worker_alone_is_replaced_too_and_drained_of_all_that_it_has
      %w[/held /free].each do |path|
        with_server(APP, "-w", "1", "--in-flight", "2", *LIMITS, "--stuck-timeout", "3") do |server| # time for the third to be seen
          victim = server.worker_pids.first
          suspended = stall(server, "/sleep", 20)
          stuck = stall(server, path, 20)
          waits = client(to: server).write("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
          eventually("it waits") { figures_of(server, victim)[:queued] == 1 }

          answer = waits.response
          assert_equal 200, answer.status
          refute_equal victim, answer.body.to_i
          assert_equal [503, 503], [suspended, stuck].map { |client| client.response&.status }
          assert_equal victim, await_end(server, "GET #{path}/~")
          assert_equal 1, server.worker_pids.size
        end
      end
    end

    # Each is there for less than that at a time.
    def test_one_that_waits_is_not_stuck_however_long
      with_server(APP, "-w", "1", "--stuck-timeout", "3") do |server|
        workers = server.worker_pids
        assert_equal 200, stall(server, "/sleep", 4).response.status
        assert_equal workers, server.worker_pids
      end
    end

    def test_without_the_option_it_stays
      with_server(APP, "-w", "2") do |server|
        workers = server.worker_pids
        assert_equal 200, stall(server, "/held", 1.5).response.status
        assert_equal workers, server.worker_pids
        refute_match(/replaced/, server.log)
      end
    end
  end
end
