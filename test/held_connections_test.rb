# frozen_string_literal: true

require_relative "helper"
require_relative "held_connections"
require_relative "http_client"

module Fairlead
  class HeldConnectionsTest < Test
    include SpeaksHTTP

    def test_those_of_each_worker_are_those_that_it_answers
      with_server("run ->(env) { [200, {}, [Process.pid.to_s]] }", "-w", "2") do |server|
        clients = Array.new(12) { client(to: server) }
        held = clients.group_by { |client| client.get("/").body.to_i }
        ports = ->(those) { those.map { |client| client.socket.local_address.ip_port } }

        server.worker_pids.each do |pid|
          # It may have inherited some of this process as well, of a driver that does not see to that.
          assert_equal ports[held[pid] || []].sort, (HeldConnections.of(pid) & ports[clients]).sort
        ensure
          server.signal(:CONT, pid)
        end
      end
    end
  end
end
