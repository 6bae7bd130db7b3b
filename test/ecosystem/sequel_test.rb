# frozen_string_literal: true

require "json"
require_relative "ecosystem"

module Fairlead
  # Sequel, which most apps without Rails use, and Hanami's own database layer is built on.
  # Covers integrations/sequel_pools.rb
  class SequelTest < EcosystemTest
    needs :database

    APP = <<~'RUBY'
      require "json"
      require "roda"
      require "sequel"
      require "timeout"

      DB = Sequel.connect(ENV.fetch("DATABASE_URL"), max_connections: 10, pool_timeout: 30)
      PARENT = DB.get(Sequel.function(:pg_backend_pid))

      DB.create_table?(:sequel_writes) { String :name }

      class App < Roda
        plugin :json

        route do |r|
          number = r.params["number"].to_i
          r.get("query") { [DB.fetch("SELECT pg_sleep(0.02), ?::int AS number", number).first[:number]] }
          r.get "transaction" do
            DB.transaction do
              before = DB.get(Sequel.function(:txid_current))
              sleep 0.01
              [before, DB.get(Sequel.function(:txid_current))]
            end
          end
          r.get "next" do
            name = "never #{number}"
            DB.transaction(rollback: :always) do
              DB[:sequel_writes].insert(name:)
              Enumerator.new { |all| all << DB[:sequel_writes].insert(name:) }.next
              Fiber.new { sleep 0.005; DB[:sequel_writes].insert(name:) }.resume
              @seen = Enumerator.new { |all| all << DB[:sequel_writes].where(name:).count }.next
            end
            [@seen, DB[:sequel_writes].where(name:).count]
          end
          r.get "abandoned" do
            Enumerator.new { |all| DB.transaction { DB[:sequel_writes].insert(name: "abandoned"); all << 1 } }.next
            [DB.in_transaction?]
          end
          r.get "interrupted" do
            DB.transaction do
              DB[:sequel_writes].insert(name: "interrupted")
              Timeout.timeout(0.1) { DB.get(Sequel.function(:pg_sleep, 20)) }
            end
          rescue Timeout::Error => error
            [error.class.name]
          end
          r.get("after") { [DB.in_transaction?, DB[:sequel_writes].where(name: "abandoned").count] }
          r.get("backend") { [Process.pid, DB.fetch("SELECT pg_backend_pid() AS id, pg_sleep(0.02)").get(:id), PARENT] }
        end
      end

      run App.freeze.app
    RUBY

    REQUESTS = 60

    def server
      shared_server(APP, "-w", "2", "--queue-target", "0", env: BUNDLE.merge("DATABASE_URL" => ENV["TEST_DATABASE_URL"]))
    end

    def test_a_query_that_waits_is_its_requests_alone
      answers = at_once { |number| "/query?number=#{number}" }

      assert_equal (1..REQUESTS).map { |number| [number] }, answers
    end

    def test_a_transaction_that_waits_is_its_requests_alone
      answers = at_once { "/transaction" }

      assert_equal answers.map(&:first), answers.map(&:last)
      assert_equal REQUESTS, answers.map(&:first).uniq.size
    end

    def test_fibers_that_a_request_makes_are_within_its_transaction
      answers = at_once { |number| "/next?number=#{number}" }

      assert_equal [[3, 0]], answers.uniq
    end

    def test_a_transaction_that_such_a_fiber_leaves_open_ends_with_its_request
      3.times do
        assert_equal [[true]], at_once { "/abandoned" }.uniq
        assert_equal [[false, 0]], at_once { "/after" }.uniq
      end
    end

    # An interrupted statement closes its connection, which Sequel puts back into its pool.
    def test_nobody_gets_a_connection_that_an_interruption_has_closed = assert_interruption_ends_alone(server)

    # Of the kinds of pools that Sequel has, timed_queue is the usual one.
    %w[threaded sharded_timed_queue sharded_threaded].each do |pool|
      define_method("test_what_is_left_open_is_closed_in_a_#{pool}_pool") do
        variables = { "DATABASE_URL" => ENV.fetch("TEST_DATABASE_URL"), "SEQUEL_DEFAULT_CONNECTION_POOL" => pool }
        server = with_server(APP, "--queue-target", "0", env: BUNDLE.merge(variables))
        2.times do
          { "/abandoned" => "[true]", "/after" => "[false,0]" }.each do |path, body|
            assert_each_equal body, Array.new(30) { Thread.new { server.get(path).body } }.map(&:value), server
          end
        end
        assert_interruption_ends_alone(server)
      end
    end

    def test_no_two_processes_share_a_connection
      answers = []
      # One worker alone may serve all that come at once, where the other gets no processor.
      eventually("both workers have answered") { answers.concat(at_once { "/backend" }).map(&:first).uniq.size == 2 }
      backends = answers.group_by(&:first).transform_values { |rows| rows.map { |row| row[1] }.uniq }

      assert_empty backends.values.inject(:&)
      refute_includes backends.values.flatten, answers.first.last, "the one that was opened before the fork"
    end

    private

    def assert_interruption_ends_alone(server)
      bodies = ->(path) { Array.new(12) { Thread.new { server.get(path).body } }.map(&:value).uniq }

      assert_equal ['["Timeout::Error"]'], bodies.call("/interrupted")
      assert_equal ["[false,0]"], bodies.call("/after")
    end

    def at_once
      server = self.server # once, for all threads
      (1..REQUESTS).map { |number| Thread.new { server.get(yield(number)) } }.map do |thread|
        answer = thread.value
        flunk "#{answer.code}\n#{server.end_of_log}" unless answer.code == "200"

        JSON.parse(answer.body)
      end
    end
  end
end
