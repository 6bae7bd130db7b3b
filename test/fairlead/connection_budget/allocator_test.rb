# frozen_string_literal: true

require_relative "../../helper"
require "fairlead/connection_budget/connection_budget"

module Fairlead
  # Which workers the supervisor asks for idle connections, by the shared page and by what workers send.
  class AllocatorTest < Test
    def setup
      super
      @page = SharedPage.new(2)
      @allocator = ConnectionBudget::Allocator.new(6, @page)
      @sockets = Array.new(2) { |slot| @allocator.admit(slot) }
      @now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    def teardown
      [@allocator, *@sockets].each(&:close)
      super
    end

    def test_one_that_owes_a_connection_is_asked_again_since_it_may_be_idle
      open_connections(0, 5)
      open_connections(1, 1)
      wait(1, 1)

      assert_equal [0, 1], asked.map(&:first), "neither has any that is idle now"
      wait(1, 2)

      assert_empty asked(later: 0.01), "so soon"
      assert_equal 1, @page.get(0, :database_recalled)
      assert_equal [[0, 1]], asked(later: 0.03)
    end

    private

    def open_connections(slot, count)
      wait(slot, count)
      asked
      @page.write(slot, :database_taken, count)
      count.times { |id| @sockets[slot].send("open #{id}", 0) }
      wait(slot, 0)
      asked
    end

    def wait(slot, count)
      @page.write(slot, :database_waiting, count)
      @page.write(slot, :database_since_us, ((@now - 1) * 1_000_000).to_i)
      @sockets[slot].send("want", 0)
    end

    # @return [Array<Array(Integer, Integer)>] slots, and how many each is asked for.
    def asked(later: 0.0)
      found = []
      @allocator.update(@now + later) { |*one| found << one }
      found
    end
  end
end
