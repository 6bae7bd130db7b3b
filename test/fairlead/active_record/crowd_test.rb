# frozen_string_literal: true

require "json"
require_relative "../../helper"

module Fairlead
  # How many requests stand in line for a database connection.
  class CrowdTest < Test
    APP = <<~RUBY
      require "active_record"
      require "json"
      ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL") + "?max_connections=1")

      run(lambda do |env|
        next [200, {}, [JSON.generate(Fairlead.stats)]] if env["PATH_INFO"] == "/figures"

        ActiveRecord::Base.with_connection { |connection| connection.execute("SELECT pg_sleep(0.5)") }
        [200, {}, []]
      end)
    RUBY

    def test_all_workers_know_how_many_wait_in_one_also_without_a_budget
      with_server(APP, "--workers", "2", env: { "DATABASE_URL" => postgresql }) do |server|
        # On a busy machine the first may have been served before the last have come, or before they are looked at.
        assert 5.times.any? { six_of_eight_wait?(server) }, "those who wait have not been seen"
        eventually("nobody to wait any more") { waiting(server).zero? }
      end
    end

    private

    def postgresql
      ENV["TEST_DATABASE_URL"] || skip("No PostgreSQL: run bin/test, or set TEST_DATABASE_URL (bin/services url)")
    end

    # Each of the two workers has one connection.
    def six_of_eight_wait?(server)
      answers = Array.new(8) { Thread.new { server.get("/").code } }
      sleep 0.01 until (seen = waiting(server) == 6) || answers.none?(&:alive?)
      assert_equal ["200"] * 8, answers.map(&:value)
      seen
    end

    def waiting(server)
      JSON.parse(server.get("/figures").body)["workers"].sum { |worker| worker["database"]["waiting"] }
    end
  end
end
