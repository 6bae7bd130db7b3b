# frozen_string_literal: true

require "open3"
require_relative "../../helper"
require_relative "../../restarts"
require_relative "../../stalls"

module Fairlead
  class RecyclingTest < Test
    include SpeaksHTTP
    include Stalls

    # Always the highest: each limit is as low as can be.
    LOWEST = Struct.new(:rand).new(1.0).freeze
    HIGHEST = Struct.new(:rand).new(0.0).freeze

    def setup
      super
      @workers = WorkerTable.new(2, slots: 6, boot_timeout: 60, drain_timeout: 30)
      @answered = Hash.new(0)
      @taken = Hash.new(0)
      @pid = 0
      boot
    end

    def test_a_worker_goes_when_it_has_answered_so_many_requests
      recycling = recycling(100, nil)
      @answered[1] = 99
      assert_nil recycling.due(@workers, 1)
      @answered[1] = 100

      assert_equal [@workers[1], "it has answered 100 requests (recycle_requests 100)"], recycling.due(@workers, 2)
    end

    def test_or_when_it_takes_so_much_memory
      recycling = recycling(nil, 200 << 20)
      @taken[2] = 201 << 20

      assert_equal [@workers[2], "it takes 201 MiB (recycle_memory 200 MiB)"], recycling.due(@workers, 1)
    end

    def test_a_limit_below_what_the_app_needs_replaces_workers_ever_more_seldom_and_is_reported_once
      recycling = recycling(nil, 200 << 20)
      @taken.default = 201 << 20
      text = logged { assert_equal [0, 60, 120, 300, 600, 1260, 2520, 4860, 6120, 8460, 9720], replacements(recycling, 0..12_000) }

      assert_equal 1, text.scan("A worker has reached 200 MiB (recycle_memory) within 1 s of its start").size
      assert_includes text, recycling.problem
    end

    def test_a_worker_that_has_grown_slowly_goes_at_once_and_is_no_problem
      recycling = recycling(nil, 200 << 20)
      @taken[1] = 201 << 20
      logged { assert_equal [0], replacements(recycling, 0..50) }
      refute_nil recycling.problem
      assert_empty replacements(recycling, 51..70)
      assert_nil recycling.problem, "all have served for a minute with less"
      @taken[2] = 201 << 20

      assert_equal [71], replacements(recycling, 71..80)
      assert_nil recycling.problem
    end

    def test_the_time_in_which_another_leaves_does_not_count_as_slow_growth
      recycling = recycling(nil, 200 << 20)
      @taken.default = 201 << 20
      logged do
        first, = recycling.due(@workers, 0)
        @workers.replace(first)
        boot(0)
        @workers.due(0)
        1.upto(120) { |now| assert_nil recycling.due(@workers, now) }
        @workers.ended(first, 120)
        refute_nil recycling.due(@workers, 121)
      end
      refute_nil recycling.problem
    end

    def test_limits_are_up_to_a_tenth_lower
      @answered[1] = 91
      assert_nil recycling(100, nil).due(@workers, 1)
      assert_equal @workers[1], recycling(100, nil, random: LOWEST).due(@workers, 1).first
      @answered[1] = 89
      assert_nil recycling(100, nil, random: LOWEST).due(@workers, 1)
    end

    def test_never_two_at_once
      recycling = recycling(100, nil)
      @answered.default = 1000
      first, = recycling.due(@workers, 1)
      @workers.replace(first)
      assert_nil recycling.due(@workers, 10), "its successor is to be forked"
      successor = @workers.due(10).grep(WorkerTable::Fork).first.worker
      @workers.forked(successor, 3)
      assert_nil recycling.due(@workers, 20), "its successor boots"
      @workers.ready(successor, 20)
      @workers.due(20)
      assert_nil recycling.due(@workers, 30), "it drains"
      @workers.ended(first, 30)

      refute_nil recycling.due(@workers, 40)
    end

    def test_a_lane_worker_goes_too_and_none_beside_it
      recycling = recycling(100, nil)
      lane = @workers.add_lane(0).worker
      @workers.forked(lane, @pid += 1)
      @answered.default = 100
      assert_nil recycling.due(@workers, 1), "it boots"
      @workers.ready(lane, 1)
      @answered.default = 0
      @answered[lane.pid] = 100
      assert_equal lane, recycling.due(@workers, 2).first
      @workers.replace(lane)
      @workers.due(2)
      @answered.default = 100
      assert_nil recycling.due(@workers, 10), "it drains"
      @workers.ended(lane, 10)

      refute_nil recycling.due(@workers, 20)
    end

    def test_looks_are_a_second_apart
      recycling = recycling(100, nil)
      @answered[1] = 0
      recycling.due(@workers, 1)
      @answered[1] = 100

      assert_nil recycling.due(@workers, 1.9)
      refute_nil recycling.due(@workers, recycling.deadline(1.9))
    end

    def test_without_limits_there_is_nothing_to_look_at
      assert_nil WorkerRecycler.for(Configuration.new, nil)
    end

    def test_no_request_fails_while_workers_are_recycled_after_some_requests
      with_server(Restarts::APP, "-w", "2", "--recycle-requests", "200") do |server|
        assert_one_leaves_at_a_time(server) do
          assert_empty Restarts.new(server, rate: 300, seconds: 5, restarts: 0).run.failures
        end
        assert_match(/is being replaced: it has answered \d+ requests/, server.log)
      end
    end

    def test_the_next_one_waits_until_the_last_has_finished_what_it_runs
      with_server(APP, "-w", "2", "--recycle-requests", "5") do |server|
        assert_one_leaves_at_a_time(server) do
          slow = Array.new(8) { Thread.new { server.get("/sleep?2.5").code } }
          Array.new(8) { Thread.new { 5.times { server.get("/cpu?0.01") } } }.each(&:join)
          assert_equal ["200"], slow.map(&:value).uniq
        end
      end
    end

    def test_a_lane_worker_in_steady_use_is_replaced
      with_server(APP, "-w", "2", "--recycle-requests", "20") do |server|
        stall(server, "/held", 0.3, known: true).response
        lane = eventually("a lane worker") { serving_lane(server) }
        eventually("its successor") { [nil, lane].none?(serving_lane(server)) }

        assert_match(/\(process #{lane}\) is being replaced: it has answered \d+ requests \(recycle_requests 20\)\./, server.log)
      end
    end

    def test_a_worker_that_has_grown_is_replaced
      app = "KEPT = []\nrun ->(env) { KEPT << \"x\" * (20 << 20); [200, {}, [Process.pid.to_s]] }"
      with_server(app, "--recycle-memory", "150M") do |server|
        first = server.get.body
        eventually("its successor") { server.get.body != first }

        assert_match(/Worker 0 \(process #{first}\) is being replaced: it takes \d+ MiB \(recycle_memory 150 MiB\)\./, server.log)
      end
    end

    def test_a_limit_below_what_the_app_needs_is_a_problem_of_the_server
      with_server(APP, "--recycle-memory", "1M") do |server|
        eventually("its first worker is replaced") { server.log.include?("A worker has reached 1 MiB") }
        status, = Open3.capture2e(RbConfig.ruby, "-I", File.join(ROOT, "lib"), File.join(ROOT, "exe/fairlead"), "status",
                                  chdir: server.directory)

        assert_match(/^A worker has reached 1 MiB \(recycle_memory\) within \d+ s of its start/, status)
      end
    end

    private

    # With workers that boot and end at once.
    #
    # @return [Array<Integer>] the seconds in which one was replaced.
    def replacements(recycling, seconds)
      seconds.select do |now|
        worker, = recycling.due(@workers, now)
        next unless worker

        @workers.replace(worker)
        boot(now)
        @workers.due(now)
        @workers.ended(worker, now)
      end
    end

    # @return [String] what was written to the log.
    def logged
      before = Log.io
      Log.io = StringIO.new
      yield
      Log.io.string
    ensure
      Log.io = before
    end

    # @return [Integer, nil] nil: none is there now.
    def serving_lane(server)
      pid = server.get("/held?0.06").body.to_i
      pid if server.title(pid).include?("lane worker")
    rescue Errno::ENOENT # that was its last answer
      nil
    end

    # Of two workers, while the block runs, and until both have been replaced.
    def assert_one_leaves_at_a_time(server)
      most = 0
      over = false
      watcher = Thread.new { (most = [most, server.worker_pids.size].max) && sleep(0.005) until over }
      yield
      eventually("both are replaced") { server.log.scan("is being replaced").size >= 2 }
      assert_operator most, :<=, 3
    ensure
      over = true
      watcher.join
    end

    def recycling(requests, memory, random: HIGHEST)
      WorkerRecycler.new(requests, memory, random:, measure: ->(_, pid) { @taken[pid] }) { |worker| @answered[worker.pid] }
    end

    def boot(now = 0)
      @workers.due(now).each do |action|
        @workers.forked(action.worker, @pid += 1)
        @workers.ready(action.worker, now)
      end
    end
  end
end
