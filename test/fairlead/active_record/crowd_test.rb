# frozen_string_literal: true

require "json"
require_relative "../../helper"

module Fairlead
  # How many requests stand in line for a database connection, and for how long.
  class CrowdTest < Test
    APP = <<~RUBY
      require "active_record"
      require "json"
      ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL") + "?max_connections=1")

      run(lambda do |env|
        next [200, {}, [JSON.generate(Fairlead.stats)]] if env["PATH_INFO"] == "/figures"
        next [200, {}, [JSON.generate(2.times.map { |slot| Fairlead.page.get(slot, :database_wait_us) })]] if env["PATH_INFO"] == "/waits"

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

    def test_all_workers_know_for_how_long_they_wait_in_one
      with_server(APP, "--workers", "2", env: { "DATABASE_URL" => postgresql }) do |server|
        answers = Array.new(8) { Thread.new { server.get("/").code } }
        # The first who has stood in line has done so for one query.
        eventually("the wait to be known") { waits(server).max.between?(400_000, 2_500_000) }
        assert_equal ["200"] * 8, answers.map(&:value)
        eventually("nobody to wait any more") { waits(server).sum.zero? }
      end
    end

    # Each is a sample of what changes from moment to moment.
    def test_what_is_shown_follows_those_who_are_served_at_its_own_pace
      page = SharedPage.new(1)
      ActiveRecord::Crowd.show_in(page, 0)
      ActiveRecord::Crowd.served(0.5, 9.0) # of a line that was gone before it was shown
      ActiveRecord::Crowd.tell(self, 3)
      shown = [[0.008, 10.0], [0.9, 10.001], [0.016, 10.003]].map do |wait, now|
        ActiveRecord::Crowd.served(wait, now)
        page.get(0, :database_wait_us)
      end

      assert_equal [8_000, 8_000, 9_000], shown
      ActiveRecord::Crowd.tell(self, 0)
      assert_equal 0, page.get(0, :database_wait_us)
    ensure
      ActiveRecord::Crowd.show_in(nil, nil)
    end

    private

    def waits(server) = JSON.parse(server.get("/waits").body)

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
