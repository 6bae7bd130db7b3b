# frozen_string_literal: true

require_relative "rails_app"
require_relative "plain_fibers"

module Fairlead
  class RailsFibersTest < RailsTest
    include PlainFibers
    needs :database

    # Before 8.1, the pools are ActiveRecord's own.
    def test_a_blocking_fiber_waits_for_a_connection_as_its_request_does
      assert_equal [1], fibers.json_at_once(*["/waiting"] * 40).uniq
    end

    private

    def fibers = shared_rails(:fairlead, "--workers", "1", "--queue-target", "0", files: APP, database: postgresql)
  end
end
