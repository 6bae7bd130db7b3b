# frozen_string_literal: true

require_relative "../../../helper"
require_relative "../../../stalls"

module Fairlead
  # All workers sleep with Ruby's lock: the supervisor starts another one.
  # Covers supervision/extra_workers.rb
  class ReliefTest < Test
    include SpeaksHTTP
    include Stalls

    # Calm after three seconds.
    QUICK = "Fairlead::WorkerTable.send(:remove_const, :CALM)\nFairlead::WorkerTable.const_set(:CALM, 3.0)\n"

    [2, 4].each do |workers|
      define_method("test_a_relief_worker_serves_while_all_#{workers}_are_stuck_and_retires_when_it_is_calm") do
        with_server(QUICK + APP, "-w", workers.to_s) do |server|
          regular = server.worker_pids
          clients = client_of_each(server, regular)
          stuck = clients.values.map { |client| keep_stuck(server, on: client) }
          response = server.get("/")
          assert_equal "200", response.code
          answer = response.body.to_i
          refute_includes regular, answer
          assert_includes server.title(answer), "relief"
          release(server)
          stuck.each { |client| assert_equal 200, client.response.status }
          assert_match(/All workers are stuck .* relief workers serve/, server.log)
          eventually("it is told") { server.log.match?(%r{GET /kept/\S+ stalled for .* asked for a relief worker}) }
          eventually("it has retired") { server.worker_pids == regular }
          assert_equal "200", server.get("/").code
        end
      end
    end

    timing def test_it_is_forked_within_a_tenth_of_a_second
      with_server(QUICK + APP, "-w", "2") do |server|
        regular = server.worker_pids
        assert_median_below(0.1, "the fork, from when the last worker was stuck,", runs: 3) do
          stuck = client_of_each(server, regular).values.map { |client| stall(server, "/held", 0.4, on: client) }
          began = File.mtime(server.path("begun-#{@stalls}")).to_f
          waiting = client(to: server).write("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
          relief = eventually("it comes") { (server.worker_pids - regular).first }
          took = started_at(relief) - began
          [*stuck, waiting].each { |client| assert_equal 200, client.response.status }
          eventually("it has retired") { server.worker_pids == regular }
          took
        end
      end
    end

    # On a busy machine a worker may have passed the lead on before it is stuck: then nothing is amiss until somebody comes.
    timing def test_it_comes_before_anybody_waits_for_it
      with_server(QUICK + APP, "-w", "2") do |server|
        regular = server.worker_pids
        stuck = client_of_each(server, regular).values.map { |client| keep_stuck(server, on: client) }
        eventually("it comes") { relief_workers(server).any? }
        release(server)
        stuck.each { |client| assert_equal 200, client.response.status }
        eventually("it has retired") { server.worker_pids == regular }
      end
    end

    # One process computes on one processor, and what it runs is cold.
    def test_there_are_as_many_as_there_are_processors_for_the_regular_ones
      with_server(QUICK + APP, "-w", "2") do |server|
        regular = server.worker_pids
        stuck = client_of_each(server, regular).values.map { |client| keep_stuck(server, on: client) }
        waiting = client(to: server).write("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        as_many = [regular.size, Etc.nprocessors].min
        relief = eventually("they come") { (server.worker_pids - regular).then { |pids| pids if pids.size >= as_many } }
        release(server)
        assert_equal as_many, relief.size
        [*stuck, waiting].each { |client| assert_equal 200, client.response.status }
        eventually("they have retired") { server.worker_pids == regular }
      end
    end

    def test_also_while_all_compute_in_c_and_give_no_sign
      with_server(APP, "-w", "2") do |server|
        stuck = client_of_each(server).values.map { |client| stall(server, "/c", 100, on: client) }
        assert_equal "200", server.get("/").code
        assert stuck.all? { |client| client.silent?(0) }, "it has waited for them"
        assert_match(/All workers are stuck .* relief workers serve/, server.log)
      end
    end

    def test_one_worker_alone_gets_no_relief_and_goes_on_when_its_call_returns
      with_server(APP, "-w", "1") do |server|
        stuck = keep_stuck(server)
        waiting = Array.new(5) { |number| client(to: server).request("GET", "/", "X-Number: #{number}").tap { sleep(0.01) } }
        alone = server.worker_pids
        eventually("they wait") { figures_of(server, alone.first)[:queued] == 5 }
        released = Time.now.to_f
        release(server)
        assert_equal 200, stuck.response.status
        waiting = waiting.map(&:response)
        assert_each_equal alone.first.to_s, waiting, server, &:body
        assert_equal alone, server.worker_pids
        assert_equal [0, 1, 2, 3, 4], begun(server)
        came = waiting.map { |response| arrival(response) }
        assert_operator came.max, :<, released, "they were read meanwhile: it is known when they came"
      end
    end

    timing def test_ordinary_work_for_the_processor_starts_none_and_is_served_in_order
      with_server(APP, "-w", "2") do |server|
        workers = server.worker_pids
        before = figures(server)
        assert_median_below(2.5, "p99 by p50, where three and more are usual", runs: 3, unit: "times") do
          times = work(server, "/cpu?0.02", connections: 16, seconds: 2)
          times[(times.size * 0.99).to_i] / times[times.size / 2]
        end
        after = figures(server)
        assert_operator (after[:handed] - before[:handed]).fdiv(after[:requests] - before[:requests]), :<=, 0.1, "hand-overs a request"
        assert_equal workers, server.worker_pids
        refute_match(/relief/, server.log)
      end
    end

    [2, 4].each do |workers|
      timing define_method("test_ordinary_work_starts_none_though_others_take_the_processor_from_#{workers}") {
        with_server(APP, "-w", workers.to_s) do |server|
          regular = server.worker_pids
          hogs = Array.new(4) { Process.spawn(RbConfig.ruby, "-e", "nil while true") }
          work(server, "/work?0.02", connections: 16, seconds: 3)
          assert_equal regular, server.worker_pids
          refute_match(/relief/, server.log)
        ensure
          hogs.each { |pid| Process.kill(:KILL, pid) && Process.wait(pid) }
        end
      }
    end

    private

    # @return [Float] seconds since 1970, to 10 ms.
    def started_at(pid)
      ticks = File.read("/proc/#{pid}/stat").rpartition(")").last.split[19].to_f
      Time.now.to_f - Process.clock_gettime(Process::CLOCK_BOOTTIME) + (ticks / Etc.sysconf(Etc::SC_CLK_TCK))
    end

    # @return [Array<Float>] how long the requests took, sorted, without those of the first half second.
    def work(server, path, connections:, seconds:)
      clients = Array.new(connections) { client(to: server) }
      asked = {}
      times = []
      ask = lambda do |client|
        client.write("GET #{path} HTTP/1.1\r\nHost: a\r\n\r\n")
        asked[client.socket] = [client, monotonic]
      end
      clients.each(&ask)
      began = monotonic
      until asked.empty?
        IO.select(asked.keys).first.each do |socket|
          client, since = asked.delete(socket)
          assert_equal 200, client.response.status
          times << (monotonic - since) if since > began + 0.5
          ask.call(client) if monotonic < began + seconds
        end
      end
      times.sort
    end
  end
end
