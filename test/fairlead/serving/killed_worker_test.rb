# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../held_connections"
require_relative "../../keep_alive_client"

module Fairlead
  # What is lost when a process goes: what it held, and nothing else; and nothing at all when it is told to go.
  class KilledWorkerTest < Test
    APP = <<~'RUBY'
      run lambda { |env|
        sleep 0.005 if env["PATH_INFO"] == "/wait"
        if env["PATH_INFO"] == "/second"
          File.write("running-#{env.object_id}-#{Process.pid}", "")
          sleep 1
        end
        [200, {}, [Process.pid.to_s]]
      }
    RUBY

    def test_kill_9_of_a_worker_loses_only_what_it_held
      with_server(APP, "-w", "3", "--queue-target", "0") do |server| # nobody is turned away
        workers = server.worker_pids
        under_load(server, 24) do |clients|
          2.times do
            workers = server.worker_pids
            eventually("each worker serves") { (workers - clients.map(&:worker)).empty? }
            victim = workers.first
            held = HeldConnections.of(victim) # it stands still: some that another worker has answered before may have come to it
            held_at = monotonic
            server.signal(:KILL, victim)
            eventually("it has gone") { !server.alive?(victim) }
            eventually("it is replaced") { (server.worker_pids - workers).size == 1 }
            eventually("its successor serves") { (server.worker_pids - clients.map(&:worker)).empty? }
            clients.flat_map(&:take_failures).each do |failure|
              assert_operator failure.opened_at, :<, held_at, failure
              assert_includes held, failure.port, failure
            end
          end
          answered = clients.sum(&:answered)
          eventually("all go on") { clients.sum(&:answered) > answered + 500 }
        end
        assert_empty @lost, "nothing is lost later"
      end
    end

    def test_kill_9_of_the_supervisor_lets_workers_finish_what_runs_and_end
      with_server(APP, "-w", "2") do |server|
        workers = server.worker_pids
        sockets = Array.new(6) { server.connect }
        sockets.each { |socket| socket.write("GET /second HTTP/1.1\r\nHost: a\r\n\r\n") }
        eventually("each request runs") { Dir[server.path("running-*")].size == 6 }
        server.signal(:KILL)
        sockets.each { |socket| assert_match(/\AHTTP\/1.1 200 /, socket.read) }
        eventually("the workers end") { workers.none? { |pid| server.alive?(pid) } }
      ensure
        sockets&.each(&:close)
      end
    end

    def test_hup_under_load_fails_no_request_and_loses_no_idle_connection
      with_server(APP, "-w", "2") do |server|
        idle = Array.new(30) { KeepAliveClient.new(server, "/").tap(&:ask) }
        before = server.worker_pids
        under_load(server, 12) do |clients|
          2.times do
            server.signal(:HUP)
            server.wait_for_notification("READY=1")
          end
          answered = clients.sum(&:answered)
          eventually("all go on") { clients.sum(&:answered) > answered + 200 }
          eventually("all workers are new") { (server.worker_pids & before).empty? }
          idle.each(&:ask)
          assert_empty (clients + idle).flat_map(&:take_failures)
          assert_empty idle.map(&:worker) & before
        end
        assert_empty @lost
      ensure
        idle&.each(&:close)
      end
    end

    private

    # Runs so many clients, of which each asks again and again, while the block runs.
    def under_load(server, count)
      clients = Array.new(count) { |i| KeepAliveClient.new(server, i.even? ? "/wait" : "/") }
      stop = false
      threads = clients.map do |client|
        Thread.new do
          # Now and then on a new connection, as it comes to any worker.
          client.ask and (client.close if (client.answered % 20).zero?) until stop
        end
      end
      yield clients
    ensure
      stop = true
      threads.each(&:join)
      @lost = clients.flat_map(&:take_failures)
      clients.each(&:close)
    end
  end
end
