# frozen_string_literal: true

require_relative "helper"
require_relative "ledger"

module Fairlead
  # The short form of `rake ledger`.
  class LedgerTest < Test
    include Databases
    needs :database

    %w[postgresql mysql2 trilogy].each do |adapter|
      define_method("test_with_#{adapter}_money_is_moved_as_a_whole_or_not_at_all") do
        ledger = Ledger.new(url: Databases.url(adapter), seconds: 10, enough: 4, seed: Random.new_seed % 10_000).run

        assert_empty ledger.faults.first(10), ledger.to_s
        assert_equal 0, ledger.counts.fetch("500", 0), "an interruption is no error of the database: #{ledger}"
        assert_operator ledger.counts.fetch("200", 0), :>, 3, ledger.to_s
        assert_operator ledger.counts.fetch("504", 0), :>, 3, ledger.to_s
      end
    end
  end
end
