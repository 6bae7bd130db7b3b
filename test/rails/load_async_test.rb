# frozen_string_literal: true

require_relative "rails_app"

module Fairlead
  # Queries that Rails runs in threads of its own, while the request's fiber waits.
  class RailsLoadAsyncTest < RailsTest
    needs :database

    FILES = {
      "config/initializers/queries.rb" => <<~RUBY,
        Rails.application.config.active_record.async_query_executor = :global_thread_pool
        Rails.application.config.active_record.global_executor_concurrency = 20
      RUBY
      "app/controllers/probes_controller.rb" => <<~RUBY
        class ProbesController < ActionController::Base
          def query
            # Not in the condition: PostgreSQL may ask that of each row until it finds the one.
            slow = Item.select("items.*, pg_sleep(0.2)")
            loaded = Array.new(4) { |n| slow.where(id: n + 1).load_async }
            count = Item.async_count
            render json: { names: loaded.flat_map { |items| items.map(&:name) }, count: count.value }
          end

          def stat = render(json: Item.connection_pool.stat)
        end
      RUBY
    }.freeze

    # One after the other each request would take 0.8 s.
    timing def test_a_request_takes_as_long_as_one_of_its_queries
      server = rails(:fairlead, "--workers", "1", files: FILES, database: postgresql)
      server.json("/query")
      assert_median_below(0.7, runs: 3) { duration { server.json("/query") } }
    end

    def test_four_queries_of_a_request_run_at_once
      server = rails(:fairlead, "--workers", "1", files: FILES, database: postgresql)
      expected = { "names" => (1..4).map { |n| "item #{n}" }, "count" => 10 }
      server.json("/query")

      assert_each_equal expected, server.json_at_once(*["/query"] * 10), server
      eventually("all connections are given back") { server.json("/stat")["busy"].zero? }
    end
  end
end
