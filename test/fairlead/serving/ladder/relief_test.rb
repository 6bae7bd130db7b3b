# frozen_string_literal: true

require_relative "../../../helper"
require_relative "../../../stalls"

module Fairlead
  # All workers sleep with Ruby's lock: the supervisor starts another one.
  class ReliefTest < Test
    include SpeaksHTTP
    include Stalls

    # Calm after half a second.
    QUICK = "Fairlead::Workers.send(:remove_const, :CALM)\nFairlead::Workers.const_set(:CALM, 0.5)\n"

    [2, 4].each do |workers|
      define_method("test_a_relief_worker_serves_while_all_#{workers}_are_stuck_and_retires_when_it_is_calm") do
        with_server(QUICK + APP, "-w", workers.to_s) do |server|
          regular = server.worker_pids
          assert_within(0.5, -> { slowest(server) }) do
            clients = client_of_each(server, regular)
            stuck = clients.values.map { |client| stall(server, "/held", 1.5, on: client) }
            began = monotonic
            answer = server.get("/").body.to_i
            took = monotonic - began
            if stuck.all? { |client| client.silent?(0) } # else their calls have returned
              refute_includes regular, answer
              assert_includes server.title(answer), "relief"
            end
            took.tap { stuck.each { |client| assert_equal 200, client.response.status } }
          end
          assert_match(/All workers are stuck .* relief workers serve/, server.log)
          eventually("it is told") { server.log.match?(%r{GET /held/\S+ stalled for .* relief worker was asked for}i) }
          eventually("it has retired") { server.worker_pids == regular }
          assert_equal "200", server.get("/").code
        end
      end
    end

    def test_it_is_forked_within_fifty_milliseconds
      with_server(QUICK + APP, "-w", "2") do |server|
        regular = server.worker_pids
        assert_one_below(0.05, "the fork, from when the last worker was stuck,") do
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
    def test_it_comes_before_anybody_waits_for_it
      with_server(QUICK + APP, "-w", "2") do |server|
        regular = server.worker_pids
        came = 4.times.any? do
          stuck = client_of_each(server, regular).values.map { |client| stall(server, "/held", 2, on: client) }
          outcome = eventually("it comes, or the calls return") { relief?(server) ? :came : (:late unless stuck.all?(&:silent?)) }
          stuck.each { |client| assert_equal 200, client.response.status }
          eventually("it has retired") { server.worker_pids == regular }
          outcome == :came
        end
        assert came, "the calls had returned before"
      end
    end

    # One process computes on one processor, and what it runs is cold.
    def test_there_are_as_many_as_there_are_processors_for_the_regular_ones
      with_server(QUICK + APP, "-w", "2") do |server|
        regular = server.worker_pids
        stuck = client_of_each(server, regular).values.map { |client| stall(server, "/held", 3, on: client) }
        waiting = client(to: server).write("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        as_many = [regular.size, Etc.nprocessors].min
        relief = eventually("they come") { (server.worker_pids - regular).then { |pids| pids if pids.size >= as_many } }
        assert stuck.all?(&:silent?), "their calls have returned"
        assert_equal as_many, relief.size
        [*stuck, waiting].each { |client| assert_equal 200, client.response.status }
        eventually("they have retired") { server.worker_pids == regular }
      end
    end

    def test_also_while_all_compute_in_c_and_give_no_sign
      with_server(APP, "-w", "2") do |server|
        assert_within(1.5, -> { slowest(server) }) do
          clients = client_of_each(server)
          stuck = clients.values.map { |client| stall(server, "/c", 3, on: client) }
          duration { assert_equal "200", server.get("/").code }.tap { stuck.each(&:response) }
        end
        assert_match(/All workers are stuck .* relief workers serve/, server.log)
      end
    end

    def test_one_worker_alone_gets_no_relief_and_goes_on_when_its_call_returns
      with_server(APP, "-w", "1") do |server|
        stuck = stall(server, "/held", 2)
        began = Time.now.to_f
        waiting = Array.new(5) { |number| client(to: server).request("GET", "/", "X-Number: #{number}").tap { sleep(0.01) } }
        alone = server.worker_pids
        assert_equal 200, stuck.response.status
        ended = Time.now.to_f
        waiting = waiting.map(&:response)
        assert_equal [alone.first.to_s], waiting.map(&:body).uniq
        assert_equal alone, server.worker_pids
        assert_equal [0, 1, 2, 3, 4], begun(server)
        came = waiting.map { |response| arrival(response) }
        assert_operator came.max - began, :<, (ended - began) / 2, "they were read meanwhile: it is known when they came"
      end
    end

    # A machine that is busy otherwise makes some wait, and others worth handing over: the best of each counts.
    def test_ordinary_work_for_the_processor_starts_none_and_is_served_in_order
      with_server(APP, "-w", "2") do |server|
        workers = server.worker_pids
        runs = []
        8.times do
          before = figures(server)
          times = work(server, "/cpu?0.02", connections: 16, seconds: 2)
          after = figures(server)
          handed = (after[:handed] - before[:handed]).fdiv(after[:requests] - before[:requests])
          runs << [times[(times.size * 0.99).to_i] / times[times.size / 2], handed]
          break if even?(runs)
        end
        assert even?(runs), "p99 by p50, where three and more are usual, and hand-overs a request: #{runs}"
        assert_equal workers, server.worker_pids
        refute_match(/relief/, server.log)
      end
    end

    [2, 4].each do |workers|
      define_method("test_ordinary_work_starts_none_though_others_take_the_processor_from_#{workers}") do
        with_server(APP, "-w", workers.to_s) do |server|
          regular = server.worker_pids
          hogs = Array.new(4) { Process.spawn(RbConfig.ruby, "-e", "nil while true") }
          work(server, "/work?0.02", connections: 16, seconds: 3)
          assert_equal regular, server.worker_pids
          refute_match(/relief/, server.log)
        ensure
          hogs.each { |pid| Process.kill(:KILL, pid) && Process.wait(pid) }
        end
      end
    end

    private

    def even?(runs) = runs.transpose.map(&:min).then { |ratio, handed| ratio < 1.8 && handed <= 0.1 }

    def relief?(server) = server.worker_pids.any? { |pid| server.title(pid).include?("relief") }

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
