# frozen_string_literal: true

require_relative "../../../helper"
require_relative "../../../stalls"

module Fairlead
  # A worker that sleeps with Ruby's lock: its sibling serves what waits.
  class HandOverTest < Test
    include SpeaksHTTP
    include Stalls

    def server = shared_server(APP, "-w", "2", "--queue-target", "0")

    # @return [Hash{Integer => Integer}] requests that each worker has handed to a sibling, less those that it was handed.
    def handed_on_by_each(server) = slots(server).to_h { |slot| [slot[:pid], slot[:handed] - slot[:received]] }

    %w[/kept /later/kept].each do |path|
      define_method("test_the_sibling_serves_new_connections_beside_#{path.delete("/")}") do
        stuck = keep_stuck(server, path)
        10.times { assert_equal "200", server.get("/").code }
        release(server)
        stuck.response
      end
    end

    %w[/held /later/held].each do |path|
      timing define_method("test_the_sibling_serves_new_connections_beside_#{path.delete("/")}_soon") {
        assert_median_below(0.1, runs: 3) do
          stuck = stall(server, path, 0.5)
          slowest(server, 10).tap { stuck.response }
        end
      }
    end

    def test_connections_that_come_at_once_are_spread_evenly
      await_regular_workers_alone(server)
      eventually("no worker is stuck any more") { figures(server)[:stall].zero? }
      before = handed_on_by_each(server)
      clients = Array.new(60) { client(to: server) }
      workers = clients.map { |client| client.write("GET /sleep?0.2 HTTP/1.1\r\nHost: a\r\n\r\n") }.map { |client| client.response.body.to_i }
      handed_on = handed_on_by_each(server).to_h { |worker, count| [worker, count - before[worker]] }
      spread = workers.tally.to_h { |worker, count| [worker, count + handed_on[worker]] }
      assert_operator spread.values.max, :<=, 36, "#{spread}, of which the busy machine has had some handed over: #{handed_on}"
      moved = workers.zip(clients.map { |client| client.get("/").body.to_i }).count { |first, now| first != now }
      assert_operator moved, :<, 15, "they stay where they are, but for some that a busy machine has kept waiting"
    end

    [2, 4].each do |workers|
      define_method("test_of_#{workers}_workers_the_one_that_is_not_stuck_gets_the_connections_of_the_others_and_keeps_them") do
        with_server(APP, "-w", workers.to_s) do |server|
          clients = client_of_each(server)
          before = figures(server)[:handed]
          stuck = Array.new(workers - 1) { keep_stuck(server) }
          eventually("it is seen") { figures(server)[:stall] == 2 * stuck.size }
          answers = clients.values.map { |client| client.get("/").body.to_i }
          release(server)
          free = clients.keys - stuck.map { |client| client.response.body.to_i }
          assert_equal free, answers.uniq
          assert_equal free, clients.values.map { |client| client.get("/").body.to_i }.uniq, "they have moved"
          # Each worker shows its own when it next looks around.
          eventually("all that was handed over has arrived") do
            figures = figures(server)
            figures[:handed] >= before + stuck.size && figures[:handed] == figures[:received] && figures[:incoming_requests].zero?
          end
          assert_empty relief_workers(server)
        end
      end
    end

    # The sibling stands still until it has been given the request, and one of its own that it has not read yet.
    def test_a_request_keeps_the_time_at_which_it_came_and_its_place
      with_server(APP, "-w", "2") do |server|
        clients = client_of_each(server)
        keep_stuck(server)
        sender = stuck_worker(server)
        receiver, = clients.keys - [sender]
        handed_on = clients[sender]
        suspend_at_rest(server, receiver)
        clients[receiver].request("GET", "/", "X-Number: 2")
        before = figures_of(server, sender)[:handed]
        came = Time.now.to_f
        handed_on.request("GET", "/", "X-Number: 1")
        eventually("it has been handed over") { figures_of(server, sender)[:handed] > before }
        received = Time.now.to_f
        release(server)
        server.signal(:CONT, receiver)

        answers = [handed_on, clients[receiver]].map(&:response)
        assert_equal [receiver.to_s] * 2, answers.map(&:body)
        assert_includes came..received, arrival(answers.first)
        assert_equal [[1, [receiver]], [2, [receiver]]], runs(server).to_a
      ensure
        server.signal(:CONT, receiver) if receiver
      end
    end

    def test_a_request_goes_with_its_body_and_with_those_behind_it
      clients = client_of_each(server)
      victim = clients.keys.first
      kept = client_of(server, victim)
      bodies = [Random.bytes(20_000), "", Random.bytes(3)]
      stuck = keep_stuck(server, on: clients[victim])
      eventually("it is seen") { figures(server)[:stall] == 2 } # else its sibling takes some as it would of any that is busy
      bodies.each { |body| kept.request("POST", "/digest", body:) }
      bodies.each { |body| assert_equal Digest::SHA256.hexdigest(body), kept.response.body }
      release(server)
      stuck.response
    end

    def test_a_request_that_cannot_move_keeps_nobody_behind_it
      clients = client_of_each(server)
      victim = clients.keys.first
      staying, moving = client_of(server, victim), client_of(server, victim)
      stuck = keep_stuck(server, on: clients[victim])
      staying.write("POST /digest HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
      sleep 0.05
      assert_equal 200, moving.get("/").status
      release(server)
      assert_equal Digest::SHA256.hexdigest("abc"), staying.response.body
      stuck.response
    end

    def test_a_worker_that_was_stuck_listens_again
      clients = client_of_each(server)
      clients.each_value { |client| stall(server, "/held", 0.2, on: client).response }
      # Each had left its listener to the other; now each must be there for it.
      clients.each_value do |client|
        stuck = keep_stuck(server, on: client)
        sleep 0.05
        answer = server.get("/").body
        release(server)
        refute_equal stuck.response.body, answer
      end
    end

    # Nothing stalls: but all of a crowd has come to one worker, and the other has nothing to do. It stands still until all have come.
    def test_the_longer_queue_hands_over_without_a_stall_too
      await_regular_workers_alone(server)
      { "/work?0.05" => 16, "/work?0.004" => 120 }.each do |path, size| # also such as are too short to be seen one by one
        crowd = Array.new(2 * size) { client(to: server) }
        worker, crowd = crowd.group_by { |client| client.get("/").body.to_i }.max_by { |_, clients| clients.size }
        before = figures(server)[:handed]
        crowd = crowd.first(size)
        suspend_at_rest(server, worker)
        crowd.each { |client| client.write("GET #{path} HTTP/1.1\r\nHost: a\r\n\r\n") }
        server.signal(:CONT, worker)
        responses = crowd.map(&:response)
        handed = figures(server)[:handed] - before
        assert_each_equal 200, responses, server, &:status
        assert_includes 1..size, handed, "#{path}: nothing was handed over, or it was passed around"
        assert_equal 2, responses.map(&:body).uniq.size, path
      ensure
        server.signal(:CONT, worker) if worker
      end
    end
  end
end
