# frozen_string_literal: true

require "json"
require_relative "ecosystem"

module Fairlead
  # Sequel, which most apps without Rails use, and Hanami's own database layer is built on.
  class SequelTest < EcosystemTest
    APP = <<~'RUBY'
      require "json"
      require "roda"
      require "sequel"

      DB = Sequel.connect(ENV.fetch("DATABASE_URL"), max_connections: 10, pool_timeout: 30)
      PARENT = DB.get(Sequel.function(:pg_backend_pid))

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
          r.get("backend") { [Process.pid, DB.fetch("SELECT pg_backend_pid() AS id, pg_sleep(0.02)").get(:id), PARENT] }
        end
      end

      run App.freeze.app
    RUBY

    REQUESTS = 60

    def server
      skip "No PostgreSQL: run bin/test, or set TEST_DATABASE_URL (bin/services url)" unless ENV["TEST_DATABASE_URL"]
      shared_server(APP, "-w", "2", env: BUNDLE.merge("DATABASE_URL" => ENV["TEST_DATABASE_URL"]))
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

    def test_no_two_processes_share_a_connection
      answers = at_once { "/backend" }
      backends = answers.group_by(&:first).transform_values { |rows| rows.map { |row| row[1] }.uniq }

      assert_equal 2, backends.size
      assert_empty backends.values.inject(:&)
      refute_includes backends.values.flatten, answers.first.last, "the one that was opened before the fork"
    end

    private

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
