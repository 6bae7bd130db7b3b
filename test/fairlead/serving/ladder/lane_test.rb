# frozen_string_literal: true

require_relative "../../../burst"
require_relative "../../../helper"
require_relative "../../../stalls"

module Fairlead
  # Routes that are known to stall: their requests run where they hold up no others.
  class LaneTest < Test
    include SpeaksHTTP
    include Stalls
    include Burst

    def test_eighty_that_hold_the_lock_take_no_worker_from_others
      assert_only_the_lane_serves(80, "/held", 0.1)
    end

    def test_nor_do_they_of_four_workers
      assert_only_the_lane_serves(80, "/held", 0.1, workers: 4)
    end

    # For so long that it is not taken for good behaviour.
    def test_nor_do_eight_that_compute
      assert_only_the_lane_serves(16, "/work", 0.6)
    end

    timing def test_they_run_by_age_but_for_how_many_run_at_once
      with_server(APP, "-w", "2") do |server|
        learn(server, "/held", :process)
        clients = Array.new(40) { |number| client(to: server, timeout: 60).request("GET", "/held?0.1", "X-Number: #{number}") }
        arrivals = clients.map { |client| arrival(client.response) }
        ran = File.readlines(server.path("ran")).map(&:to_i)
        apart = ran.sort_by { |number| arrivals[number] }.each_with_index.sum { |number, place| (ran.index(number) - place).abs }
        assert_operator apart, :<, 6 * 40, "places between when they came and when they ran, in all"
      end
    end

    def test_also_when_they_wait_before_they_hold_it
      with_server(APP, "-w", "2") do |server|
        learn(server, "/later/held", :process)
        held = ask(server, "/later/held?0.1", 60)
        sleep_beside(server, held)
        answered(held)
      end
    end

    def test_a_connection_comes_back_from_the_lane
      with_server(APP, "-w", "2") do |server|
        learn(server, "/held", :process)
        kept = client(to: server)
        lane = kept.get("/held?0.1").body.to_i
        assert_includes server.title(lane), "lane worker"
        assert_includes regular_workers(server), kept.get("/").body.to_i
        assert_equal lane, kept.get("/held?0.1").body.to_i
        assert_equal Digest::SHA256.hexdigest("abc"), kept.request("POST", "/digest", body: "abc").response.body
      end
    end

    def test_of_those_that_block_without_the_lock_eight_run_at_once
      with_server(APP) do |server|
        learn(server, "/free/gate", :threads)
        blocked, meanwhile = while_the_gate_is_closed(server) do
          asked = ask(server, "/free/gate?0.1", 24)
          sleep_beside(server, asked)
          [asked, eventually("they run, and wait") { figures(server).then { |now| now if now.values_at(:lane_running, :lane_waiting).all?(&:positive?) } }]
        end
        answered(blocked)
        assert_includes 1..8, meanwhile[:lane_running]
        figures = eventually("all are counted") { figures(server).then { |now| now if now[:lane_requests] >= 24 } }
        assert_includes 1..8, figures[:lane_max]
        assert_operator figures[:lane_waited_us], :>, 0
      end
    end

    def test_sixty_that_block_in_a_fiber_of_their_own_are_all_answered
      with_server(APP) do |server|
        learn(server, "/blocking-fiber", :threads)
        assert_equal 60, answered(ask(server, "/blocking-fiber?0.05", 60)).size
      end
    end

    def test_in_a_lane_too_nobody_waits_for_longer_than_the_queue_timeout
      with_server(APP, "--queue-timeout", "4") do |server|
        learn(server, "/free/gate", :threads)
        began = monotonic
        asked, refused, seconds = while_the_gate_is_closed(server) do
          clients = ask(server, "/free/gate?0", 20) # eight at once
          [clients, first_answered(clients, 12), monotonic - began]
        end
        served = (asked - refused.keys).map(&:response)

        assert_equal [[503, true, "waited too long in the queue"]],
                     refused.values.map { |answer| [answer.status, answer["retry-after"].to_i.positive?, answer.body[/waited too .* queue/]] }.uniq
        assert_operator seconds, :>=, 4
        assert_equal 8, served.size
        assert_each_equal 200, served, server, &:status
      end
    end

    timing def test_what_waits_beside_one_that_is_known_to_block_goes_on
      with_server(APP) do |server|
        learn(server, "/free", :threads)
        asleep = client(to: server)
        before = figures(server)[:standbys]
        asleep.write("GET /sleep?0.1 HTTP/1.1\r\nHost: a\r\n\r\n")
        blocked = stall(server, "/free", 1.2, known: true)
        assert_equal 200, asleep.response.status
        assert blocked.silent?(0)
        assert_equal 200, blocked.response.status
        assert_equal before, figures(server)[:standbys], "the lead has to stay where it was"
      end
    end

    def test_in_one_worker_alone_others_have_their_turn_between_two_that_hold_the_lock
      with_server(APP, "-w", "1") do |server|
        learn(server, "/held", :process)
        held = ask(server, "/held?0.2", 25)
        assert_equal "200", server.get("/").code
        assert_some_wait held
        assert_equal 25, answered(held).size
        assert_equal 1, server.worker_pids.size
      end
    end

    def test_in_one_worker_alone_those_that_hold_the_lock_wait_together
      with_server(APP, "-w", "1") do |server|
        learn(server, "/held/sleep", :process, 0.2)
        took = duration { answered(ask(server, "/held/sleep?0.06", 40)) }
        assert_operator took, :<, 12, "not 14.4 s, one after the other"
        assert_operator took, :>=, 2.4, "each holds it alone"
        assert_equal 1, server.worker_pids.size
      end
    end

    def test_a_route_that_behaves_is_forgotten
      with_server(APP, "-w", "2") do |server|
        learn(server, "/held", :process)
        eventually("it is forgotten") do
          assert_equal "200", server.get("/held?0.001").code
          lane_of(server, "/held") == "none"
        end
        assert_includes regular_workers(server), server.get("/held?0.001").body.to_i
        learn(server, "/held", :process)
        5.times { server.get("/held?0.001") }
        assert_equal "process", lane_of(server, "/held"), "who has to be learnt again is kept for longer"
      end
    end

    def test_what_cannot_move_runs_where_it_is
      with_server(APP, "-w", "2") do |server|
        learn(server, "/held", :process)
        post = client(to: server)
        post.write("GET /held?0.05 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
        assert_includes regular_workers(server), post.response.body.to_i
      end
    end

    def test_the_lane_worker_may_die_and_goes_when_the_server_ends
      with_server(APP, "-w", "2") do |server|
        learn(server, "/held", :process)
        lane = server.get("/held?0.05").body.to_i
        assert_includes server.title(lane), "lane worker"
        server.signal(:KILL, lane)
        eventually("it has ended") { !server.alive?(lane) }
        assert_equal "200", server.get("/held?0.05").code
        held = ask(server, "/held?0.05&one", 5)
        eventually("they run") { File.exist?(server.path("begun-one")) }
        eventually("all have come") { server.worker_pids.sum { |pid| figures_of(server, pid)&.fetch(:connections).to_i } >= 5 }
        server.signal(:TERM)
        answered(held)
        assert_predicate server.wait_for_end, :success?
      end
    end

    def test_a_restart_replaces_the_lane_worker
      with_server(APP, "-w", "2") do |server|
        learn(server, "/held", :process)
        lane = server.get("/held?0.05").body.to_i
        server.signal(:HUP)
        eventually("the lane worker of before has gone") { !server.alive?(lane) }
        assert_equal "200", server.get("/held?0.05").code
      end
    end

    # The app's own calls are short; it is the machine that does not let the server run.
    timing def test_a_machine_that_does_other_work_gives_no_route_a_lane
      with_server(APP, "-w", "1") do |server|
        hogs = Array.new(3 * Etc.nprocessors) { Process.spawn(RbConfig.ruby, "-e", "nil while true") }
        Dir.children("/proc/#{server.worker_pids.first}/task").each do |id|
          Process.setpriority(Process::PRIO_PROCESS, id.to_i, 10)
        end
        20.times { server.get("/many?0.02") }
      ensure
        hogs.each { |pid| Process.kill(:KILL, pid) && Process.wait(pid) }
        assert_includes [nil, "none"], lane_of(server, "/many")
        refute_match(/has got a lane/, server.log)
        # What the server was kept from seeing it cannot leave out of account.
        assert_operator server.log.scan(/^fairlead: .* stalled for/).size, :<=, 15
      end
    end

    private

    # A slow machine may take longer for all than a request may wait by default.
    def assert_only_the_lane_serves(count, path, seconds, workers: 2)
      with_server(APP, "-w", workers.to_s, "--queue-timeout", "300") do |server|
        learn(server, path, :process, [0.3, seconds].max)
        asked = ask(server, "#{path}?#{seconds}", count)
        sleep_beside(server, asked)
        answered(asked)
        in_lane, others = server.worker_pids.partition { |pid| server.title(pid).include?("lane worker") }
        assert_includes 1..workers, in_lane.size
        figures = eventually("all are counted") do
          each_workers_figures(server).then { |each| each if each.values_at(*in_lane).compact.sum { |one| one[:lane_requests] } >= count }
        end
        assert_equal [0] * workers, others.map { |pid| figures[pid][:lane_requests] }
        waited = figures.values_at(*in_lane).sum { |one| one[:lane_waited_us] } / 1e6
        assert_operator waited, :>, seconds * count, "each has waited for others, mostly for more than one"
        assert_match(/hold Ruby's lock run in a worker of their own now: GET #{path}/, server.log)
        refute_match(/relief/, server.log)
      end
    end

    # Has a route stall, until the server knows it.
    def learn(server, path, lane, seconds = 0.3)
      eventually("it is known") do
        stall(server, path, seconds, known: true).response
        lane_of(server, path) == lane.to_s
      end
    end

    def lane_of(server, path)
      JSON.parse(server.get("/routes").body).find { |row| row["route"] == "GET #{path}" }&.fetch("lane")
    end

    # Fifty that sleep for 0.1 s are answered while those in the lane have their turns.
    def sleep_beside(server, others)
      seconds_of_burst(server, ["/sleep?0.1"] * 50)
      assert_some_wait others
    end

    def assert_some_wait(clients) = assert(clients.any? { |client| client.silent?(0) }, "they have waited for those in the lane")

    # @return [Array<HTTPClient>]
    def ask(server, path, count)
      Array.new(count) { client(to: server, timeout: 300).write("GET #{path} HTTP/1.1\r\nHost: a\r\n\r\n") }
    end

    # @return [Array<Float>] when each had come to the server, in the order in which they were answered.
    def answered(clients)
      first_answered(clients, clients.size).each_value.map do |response|
        assert_equal 200, response.status, response.body
        arrival(response)
      end
    end

    # @return [Hash{HTTPClient => HTTPClient::Response}] so many of those that are answered first.
    def first_answered(clients, count)
      waiting = clients.to_h { |client| [client.socket, client] }
      answers = {}
      while answers.size < count
        ready, = IO.select(waiting.keys, nil, nil, 300)
        flunk "#{answers.size} of #{count} were answered" unless ready
        ready.each { |socket| waiting.delete(socket).then { |client| answers[client] = client.response } }
      end
      answers
    end

    def each_workers_figures(server)
      JSON.parse(server.get("/figures").body, symbolize_names: true).to_h { |figures| [figures[:pid], figures] }
    end
  end
end
