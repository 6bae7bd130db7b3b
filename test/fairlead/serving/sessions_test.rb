# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../stalls"

module Fairlead
  # A worker that names a session in its response (Mcp-Session-Id) gets all requests of that session, whichever worker their
  # connections have come to.
  class SessionsTest < Test
    include SpeaksHTTP
    include Stalls

    APP = "#{Stalls::APP.sub("run lambda", "OTHERS = lambda")}\n" + <<~'RUBY'
      require "securerandom"
      SESSIONS = {}

      run lambda { |env|
        id = env["HTTP_MCP_SESSION_ID"]
        case env["PATH_INFO"]
        when "/begin"
          id = SecureRandom.uuid
          SESSIONS[id] = 0
          [200, { "mcp-session-id" => id }, [Process.pid.to_s]]
        when "/call"
          next [404, { "mcp-session-id" => id.to_s }, ["no such session"]] unless SESSIONS.key?(id)

          size = env["rack.input"].read.size
          sleep(env["QUERY_STRING"].to_f)
          [200, {}, ["#{Process.pid} #{SESSIONS[id] += 1} #{size}"]]
        else OTHERS.call(env)
        end
      }
    RUBY

    def test_requests_over_any_connection_reach_the_worker_of_their_session
      session_of_each(server).each do |pid, id|
        clients = client_of_each(server).values + Array.new(6) { client(to: server) }

        assert_equal (1..8).map { |n| "#{pid} #{n} 0" }, clients.map { |client| call(client, id) }
      end
    end

    def test_its_body_follows_however_it_comes
      (here, id), (there,) = session_of_each(server).to_a
      head = "POST /call HTTP/1.1\r\nHost: a\r\nMcp-Session-Id: #{id}\r\n"

      assert_equal "#{here} 1 300000", call(client_of(server, there), id, body: "x" * 300_000)
      client = client_of(server, there).write("#{head}Transfer-Encoding: chunked\r\n\r\n3\r\nab")
      client.write("c\r\n0\r\n\r\n")

      assert_equal "#{here} 2 3", client.response.body
      client = client_of(server, there).write("#{head}Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")

      assert_equal 100, client.response.status
      assert_equal "#{here} 3 2", client.write("{}").response.body
    end

    def test_pipelined_requests_of_two_sessions
      sessions = session_of_each(server)
      heads = (sessions.to_a * 2).map { |_, id| "GET /call HTTP/1.1\r\nHost: a\r\nMcp-Session-Id: #{id}\r\n\r\n" }
      client = client(to: server).write(heads.join)
      answers = Array.new(4) { client.response.body.split.first(2).map(&:to_i) }

      assert_equal [1, 2].flat_map { |n| sessions.keys.map { |pid| [pid, n] } }, answers
    end

    def test_many_sessions_at_once_lose_no_request
      with_server(APP, "-w", "3") do |server|
        answers = Array.new(12) do
          Thread.new do
            first = server.get("/begin")
            Array.new(25) { server.get("/call?0.002", "Mcp-Session-Id" => first["mcp-session-id"]).body.split.first(2) }
                 .then { |found| [first.body, found] }
          end
        end

        answers.map(&:value).each { |pid, found| assert_equal (1..25).map { |n| [pid, n.to_s] }, found }
      end
    end

    # The sibling serves what else has come to the worker meanwhile.
    def test_a_request_waits_for_the_worker_of_its_session_though_that_is_stuck
      sessions = session_of_each(server)
      clients = sessions.keys.to_h { |worker| [worker, Array.new(2) { client_of(server, worker) }] }
      keep_stuck(server)
      pid = stuck_worker(server)
      id = sessions.fetch(pid)
      waiting, other = clients.delete(pid)
      there, = clients.values.first
      [waiting, there].each { |client| client.request("GET", "/call", "Mcp-Session-Id: #{id}") }

      refute_equal pid, other.get("/").body.to_i
      release(server)
      assert_equal ["#{pid} 1 0", "#{pid} 2 0"], [waiting, there].map { |client| client.response.body }.sort
    end

    def test_a_session_ends_with_its_worker
      with_server(APP, "-w", "2") do |server|
        ended, left = session_of_each(server).to_a
        Process.kill(:KILL, ended.first)
        eventually("it is replaced") { (server.worker_pids - [ended.first]).size == 2 && server.get("/").code == "200" }
        client = client(to: server)

        assert_equal 404, client.request("GET", "/call", "Mcp-Session-Id: #{ended.last}").response.status
        assert_equal "#{left.first} 1 0", call(client, left.last)
        assert_equal "1", call(client, session(client)).split[1]
      end
    end

    def test_after_a_restart_a_client_begins_anew
      with_server(APP, "-w", "2") do |server|
        id = session(client(to: server))
        before = server.worker_pids
        server.restart
        eventually("those who keep the session have gone") { (server.worker_pids & before).empty? }

        assert_equal "404", server.get("/call", "Mcp-Session-Id" => id).code
        id = session(client(to: server))
        answers = Array.new(8) { server.get("/call", "Mcp-Session-Id" => id).body.split }

        assert_equal (1..8).map(&:to_s), answers.map { |answer| answer[1] }
      end
    end

    private

    def server = shared_server(APP, "-w", "2")

    # @return [String] the id of a new one.
    def session(client) = client.get("/begin")["mcp-session-id"]

    # @return [Hash{Integer => String}] the id of a new session of each worker, by process.
    def session_of_each(server)
      found = {}
      eventually("each worker has a session") do
        client_of_each(server).each_value { |client| client.get("/begin").then { |begun| found[begun.body.to_i] = begun["mcp-session-id"] } }
        (regular_workers(server) - found.keys).empty?
      end
      found
    end

    def call(client, id, body: nil)
      client.request(body ? "POST" : "GET", "/call", "Mcp-Session-Id: #{id}", body:).response.body
    end
  end
end
