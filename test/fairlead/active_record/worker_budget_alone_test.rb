# frozen_string_literal: true

require "active_record"
require "active_record/database_configurations"
require_relative "../../helper"

module Fairlead
  # A worker's side of `database_connections`, without a server.
  class BudgetAloneTest < Test
    def test_a_descriptor_that_cannot_be_sent_costs_the_supervisor_no_word
      ours, theirs = PacketSocket.pair
      budget = ActiveRecord::WorkerBudget.new(10, nil, 0, theirs)
      nil until theirs.sendmsg_nonblock("want", exception: false) == :wait_writable
      File.open(File::NULL) { |file| budget.opened(1, file) } # has to wait
      budget.free(2)
      words(ours)
      budget.shut(1)

      assert_equal ["open 1", "free 2", "shut 1"], words(ours)
    ensure
      [ours, theirs].each(&:close)
    end

    def test_a_server_is_the_same_whoever_names_its_usual_port
      { %w[postgresql postgis] => 5432, %w[mysql2 trilogy] => 3306 }.each do |adapters, port|
        named = adapters.product([nil, port, port.to_s]).map { |adapter, given| server_of(adapter:, host: "db", port: given) }

        assert_equal ["db:#{port}"], named.uniq
        refute_includes named, server_of(adapter: adapters.first, host: "db", port: port + 1)
      end
    end

    def test_what_it_spares_it_need_not_give_back_once_more
      page = SharedPage.new(1)
      budget = ActiveRecord::WorkerBudget.new(10, page, 0, nil)
      page.write(0, :database_granted, 3)
      page.write(0, :database_recalled, 2)
      budget.give_up_idle(1)

      assert_equal [true, false], Array.new(2) { budget.recalled? }
    end

    private

    def server_of(**configuration)
      ActiveRecord::WorkerBudget.server_of(::ActiveRecord::DatabaseConfigurations::HashConfig.new("test", "primary", configuration))
    end

    # @return [Array<String>] what has come.
    def words(socket)
      all = []
      while (message, = socket.recvmsg_nonblock(exception: false)) && message != :wait_readable
        all << message
      end
      all
    end
  end
end
