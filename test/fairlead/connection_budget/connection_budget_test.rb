# frozen_string_literal: true

require_relative "../../helper"
require "fairlead/connection_budget/connection_budget"

module Fairlead
  # What supervisors of older and newer code tell each other about their budgets, over real sockets.
  class ConnectionBudgetReportTest < Test
    SERVER = 77
    OTHER = 1

    def setup
      super
      @budget = ConnectionBudget.new(10, 1, elsewhere: [retained(OTHER, 10)])
      @share = @budget.admit(0)
      @share.pages.first.database(SERVER)
      @now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      ours, @other_end = Channel.pair
      @control = ours.io
    end

    def teardown
      [@parent || @control, @other_end, @budget, @share].each(&:close)
      super
    end

    def test_it_reports_what_it_retains_once_for_each_change
      2.times { report(parent) }

      assert_equal [Messages::RetainedConnections.new(supervisor: Process.pid, servers: [[SERVER, 0]], rest: 10)], reported

      @budget.handle(retained(OTHER, 6))
      report(parent)

      assert_equal [[SERVER, 4]], reported.last.servers
    end

    def test_what_the_init_process_had_no_room_for_is_reported_again
      nil while parent.post(Messages::Restart.new)
      report(parent)
      refute_includes reported.map(&:class), Messages::RetainedConnections

      report(parent)
      assert_equal [Messages::RetainedConnections], reported.map(&:class)
    end

    def test_it_requests_what_it_lacks
      wait_for_connections(3)
      report(parent)

      assert_includes reported, Messages::ConnectionRequest.new(server: SERVER, count: 3)
    end

    def test_it_lends_what_another_one_requests
      @budget.handle(retained(OTHER, 0))
      @budget.handle(Messages::ConnectionRequest.new(server: SERVER, count: 4))
      report(parent)

      assert_equal [[SERVER, 6]], reported.last.servers
    end

    private

    def retained(supervisor, count) = Messages::RetainedConnections.new(supervisor:, servers: [[SERVER, count]], rest: 10)

    def parent
      @control.autoclose = false # it is the parent's
      @parent ||= ParentLink.new(pid: OTHER, generation: 1, control: @control.fileno, listeners: [])
    end

    def wait_for_connections(count)
      @share.pages.first.write(0, :database_waiting, count)
      @share.sockets.first.send("want", 0)
    end

    def report(parent)
      @budget.update(@now += 1) { nil }
      @budget.report(@now, parent)
    end

    def reported = @other_end.receive.first
  end
end
