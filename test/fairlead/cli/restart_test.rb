# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../strict_client"

module Fairlead
  # What clients see of restarts and deaths: nothing, or as little as can be.
  class RestartTest < Test
    APP = <<~RUBY
      run ->(env) do
        sleep 0.01 if env["PATH_INFO"] == "/wait"
        [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
      end
    RUBY

    def test_no_request_fails_while_the_workers_are_restarted_under_load
      with_server(APP, "-w", "2") do |server|
        clients = under_load(server, 8) do
          3.times { restart(server) }
        end

        assert_empty clients.flat_map(&:failures)
        assert_operator clients.sum(&:answers), :>, 100
      end
    end

    def test_connections_that_are_idle_while_the_workers_are_restarted_get_another_answer
      with_server(APP, "-w", "2") do |server|
        clients = Array.new(50) { StrictClient.new(server) }
        clients.each(&:request)
        before = server.worker_pids
        restart(server)
        eventually("the end of the old workers") { (server.worker_pids & before).empty? }
        clients.each(&:request)

        assert_empty clients.flat_map(&:failures)
        assert_equal [2], clients.map(&:answers).uniq
        assert_empty clients.map(&:pid) & before, "the new workers have answered"
      ensure
        clients&.each(&:disconnect)
      end
    end

    def test_one_worker_alone_is_restarted_without_a_failed_request_too
      with_server(APP, "-w", "1") do |server|
        idle = StrictClient.new(server)
        idle.request
        clients = under_load(server, 4) { 3.times { restart(server) } }
        idle.request

        assert_empty (clients + [idle]).flat_map(&:failures)
      ensure
        idle&.disconnect
      end
    end

    def test_no_request_fails_when_workers_are_added_and_removed_under_load
      with_server(APP, "-w", "2") do |server|
        clients = under_load(server, 8) do
          2.times { server.signal(:TTIN) && eventually("more") { server.log.include?("The number of workers is now 3") } }
          eventually("four") { server.worker_pids.size == 4 }
          3.times do |round|
            server.signal(:TTOU)
            eventually("fewer") { server.worker_pids.size == 3 - round }
          end
        end

        refute_includes server.log, "it is killed", "who asks again as soon as it is answered keeps no worker that leaves"
        assert_empty clients.flat_map(&:failures)
      end
    end

    def test_over_a_unix_socket_too
      with_server(APP, "-w", "2", "-b", "unix:app.sock") do |server|
        connect = server.method(:connect)
        server.define_singleton_method(:connect) { connect.call(unix: path("app.sock")) }
        clients = under_load(server, 4) { 2.times { restart(server) } }

        assert_empty clients.flat_map(&:failures)
      end
    end

    def test_a_worker_that_is_killed_under_load_loses_only_what_it_held
      with_server(APP, "-w", "2") do |server|
        killed, other = server.worker_pids
        clients = under_load(server, 8) do |asking|
          server.signal(:KILL, killed)
          eventually("a successor") { server.worker_pids.size == 2 && !server.worker_pids.include?(killed) }
          before = asking.map(&:answers)
          eventually("all are answered again") { asking.zip(before).all? { |client, answers| client.answers > answers } }
        end

        assert clients.all? { |client| client.failures.size <= 1 }, clients.flat_map(&:failures).inspect
        assert_includes server.worker_pids, other
      end
    end

    private

    # Eight clients that ask all the time, while the block runs.
    def under_load(server, count)
      going = true
      clients = Array.new(count) { StrictClient.new(server) }
      threads = clients.each_with_index.map do |client, index|
        Thread.new { client.request(index.even? ? "/" : "/wait") while going }
      end
      eventually("load") { clients.all? { |client| client.answers > 5 } }
      yield clients
      going = false
      threads.each(&:join)
      clients.each(&:disconnect)
    end

    def restart(server) = server.restart
  end
end
