# frozen_string_literal: true

require_relative "../helper"
require_relative "../restarts"

module Fairlead
  class RecyclingTest < Test
    # Always the highest: each limit is as low as can be.
    LOWEST = Struct.new(:rand).new(1.0).freeze
    HIGHEST = Struct.new(:rand).new(0.0).freeze

    def setup
      super
      @workers = Workers.new(2, slots: 6, boot_timeout: 60, drain_timeout: 30)
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
      @workers.replace(first, 1)
      assert_nil recycling.due(@workers, 10), "its successor is to be forked"
      successor = @workers.due(10).grep(Workers::Fork).first.worker
      @workers.forked(successor, 3)
      assert_nil recycling.due(@workers, 20), "its successor boots"
      @workers.ready(successor, 20)
      assert_nil recycling.due(@workers, 30), "it drains"
      @workers.ended(first, 30)

      refute_nil recycling.due(@workers, 40)
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
      assert_nil Recycling.for(Configuration.new, nil)
    end

    def test_the_memory_of_a_process_is_known
      assert_operator Recycling.memory(Process.pid), :>, 5 << 20
      assert_equal 0, Recycling.memory(1 << 22)
    end

    def test_no_request_fails_while_workers_are_recycled_after_some_requests
      with_server(Restarts::APP, "-w", "2", "--recycle-requests", "200") do |server|
        most = 0
        run = Restarts.new(server, rate: 300, seconds: 5, restarts: 20).run { most = [most, server.worker_pids.size].max }

        assert_empty run.failures
        assert_operator server.log.scan(/is being replaced: it has answered \d+ requests/).size, :>=, 2
        assert_operator most, :<=, 3, "one leaves at a time"
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

    private

    def recycling(requests, memory, random: HIGHEST)
      Recycling.new(requests, memory, random:, measure: ->(pid) { @taken[pid] }) { |worker| @answered[worker.pid] }
    end

    def boot
      @workers.due(0).each do |action|
        @workers.forked(action.worker, @pid += 1)
        @workers.ready(action.worker, 0)
      end
    end
  end
end
