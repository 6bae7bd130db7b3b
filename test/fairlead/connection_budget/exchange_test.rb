# frozen_string_literal: true

require_relative "../../helper"
require "fairlead/connection_budget/connection_budget"

module Fairlead
  # What supervisors of older and newer code say to each other of their budgets, over real sockets.
  class ExchangeTest < Test
    SERVER = 77
    OTHER = 1

    def setup
      super
      @budgets = Budgets.new(10, 1, elsewhere: [kept(OTHER, 10)])
      @share = @budgets.admit(0)
      @share.pages.first.database(SERVER)
      @exchange = Budgets::Exchange.new(@budgets)
      @now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      ours, @other_end = Channel.pair
      @control = ours.io
    end

    def teardown
      [@parent || @control, @other_end, @budgets, @share].each(&:close)
      super
    end

    def test_what_it_keeps_is_said_whenever_it_has_changed_and_not_again
      2.times { attend(parent) }

      assert_equal [Messages::Keeps.new(supervisor: Process.pid, servers: [[SERVER, 0]], rest: 10)], said

      @exchange.hear(keeps(OTHER, 6))
      attend(parent)

      assert_equal [[SERVER, 4]], said.last.servers
    end

    def test_what_it_lacks_is_wished_for
      wait_for_connections(3)
      attend(parent)

      assert_includes said, Messages::Wish.new(server: SERVER, count: 3)
    end

    def test_what_another_one_wishes_for_is_lent
      @exchange.hear(keeps(OTHER, 0))
      @exchange.hear(Messages::Wish.new(server: SERVER, count: 4))
      attend(parent)

      assert_equal [[SERVER, 6]], said.last.servers
    end

    private

    def kept(supervisor, count) = Budgets::Kept.new(supervisor:, servers: [[SERVER, count]], rest: 10)

    def keeps(supervisor, count) = Messages::Keeps.new(**kept(supervisor, count).to_h)

    def parent
      @control.autoclose = false # it is the parent's
      @parent ||= ParentLink.new(pid: OTHER, generation: 1, control: @control.fileno, listeners: [])
    end

    def wait_for_connections(count)
      @share.pages.first.write(0, :database_waiting, count)
      @share.sockets.first.send("want", 0)
    end

    def attend(parent)
      @budgets.attend(@now += 1) { nil }
      @exchange.attend(@now, parent)
    end

    def said = @other_end.receive.first
  end
end
