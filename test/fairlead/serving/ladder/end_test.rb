# frozen_string_literal: true

require_relative "../../../helper"
require_relative "../../../stalls"

module Fairlead
  # The end of a worker, and forks in it, while a request stalls.
  class EndWhileStalledTest < Test
    include SpeaksHTTP
    include Stalls

    def test_term_lets_requests_that_stall_end
      with_server(APP, "-w", "2") do |server|
        stalled = %w[/held /free /cpu].map { |path| stall(server, path, 0.8) }
        server.signal(:TERM)
        stalled.each { |client| assert_equal 200, client.response.status }
        assert_predicate server.wait_for_end, :success?
      end
    end

    def test_a_standby_drains_in_place_of_a_reactor_that_blocks
      with_server(APP) do |server|
        idle = client(to: server)
        idle.get("/")
        gate = server.write("gate", "")
        blocked = stall(server, "/gate", 0)
        server.signal(:TERM)
        assert_predicate idle, :eof?, "it ends before the call returns"
        File.delete(gate)
        assert_equal 200, blocked.response.status
        assert_predicate server.wait_for_end, :success?
      end
    end

    def test_a_second_term_does_not_wait_for_one_that_is_stuck
      with_server(APP, "-w", "2") do |server|
        stall(server, "/held", 20)
        stall(server, "/free", 20)
        server.signal(:TERM)
        server.wait_for_notification("STOPPING=1")
        server.signal(:TERM)
        assert_operator duration { server.wait_for_end }, :<, 10
      end
    end

    def test_a_restart_waits_for_one_that_is_stuck_and_loses_nothing
      with_server(APP, "-w", "2") do |server|
        stuck = stall(server, "/held", 0.8)
        before = server.worker_pids
        server.signal(:HUP)
        20.times { assert_equal "200", server.get("/").code }
        assert_equal 200, stuck.response.status
        eventually("all workers are new") { server.worker_pids.size == 2 && (server.worker_pids & before).empty? }
      end
    end

    def test_a_request_forks_while_another_thread_leads
      with_server(APP) do |server|
        blocked = stall(server, "/free", 1.5)
        clients = Array.new(10) { client(to: server) }
        5.times do
          clients.each { |client| client.write("GET /fork HTTP/1.1\r\nHost: a\r\n\r\n") }
          clients.each { |client| assert_equal 200, client.response.status }
        end
        assert_equal 200, blocked.response.status
        assert_equal "200", server.get("/").code
      end
    end

    def test_threads_that_move_between_those_of_the_system_are_refused
      with_server(APP, env: { "RUBY_MN_THREADS" => "1" }, ready: false) do |server|
        assert_equal 1, server.wait_for_end.exitstatus
        assert_match(/RUBY_MN_THREADS=1 .* Unset/m, server.log)
        refute_match(/\.rb:\d/, server.log)
      end
    end
  end
end
