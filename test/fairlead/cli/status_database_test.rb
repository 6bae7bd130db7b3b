# frozen_string_literal: true

require "json"
require_relative "../../helper"
require_relative "../../burst"

module Fairlead
  class CLI
    # Who waits for a database connection, and why, as `fairlead status` says it.
    # Covers control/pool_reports.rb
    class StatusDatabaseTest < Test
      include Burst
      needs :database

      # A connection is held by its request until the test is over.
      APP = <<~RUBY
        require "active_record"
        ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL") + "?pool=2&checkout_timeout=60")

        run(lambda do |env|
          ActiveRecord::Base.with_connection do |connection|
            connection.select_value("SELECT 1")
            sleep(0.01) until File.exist?("over")
          end
          [200, { "content-type" => "text/plain" }, ["done"]]
        end)
      RUBY
      private_constant :APP

      def test_a_pool_that_is_full
        with_server(APP, env: { "DATABASE_URL" => postgresql }) do |server|
          during(server, requests: 12) do
            full = { "pool" => "primary", "size" => 2, "connections" => 2, "in_use" => 2, "waiting" => 10 }
            # What the pool says is of the look before.
            now = asked_until(server, "open" => 2, "in_use" => 2, "waiting" => 10) { |answer| full <= answer.dig("workers", 0, "pools", 0).to_h }
            assert_match(/^10 requests of worker 0 .* wait for a database connection.*: its pool primary is full \(2 of 2 in use\)/,
                         now["matters"].join("\n"))
          end
        end
      end

      def test_a_budget_that_is_spent
        with_server(APP, "-w", "2", "--database-connections", "3", env: { "DATABASE_URL" => postgresql }) do |server|
          during(server, requests: 12) do
            now = asked_until(server, "open" => 3, "in_use" => 3, "waiting" => 9)

            assert_match(/ wait for a database connection.*: it has \d of the 3 that all workers share .*, and all together have 3/, now["matters"].join)
          end
        end
      end

      def test_a_worker_that_may_not_start_a_thread_leaves_what_it_has_said_before
        pools = PoolReports.new
        pools.record(1, [{ pool: "primary" }])
        without_more_threads { PoolReports.collect { |said| pools.record(1, said) } }

        assert_equal [{ pool: "primary" }], pools.add_to([{ pid: 1 }]).first[:pools]
        ours, theirs = Channel.pair
        pools.request([WorkerTable::Worker.new(pid: 1, state: :serving, channel: ours)])
        assert_equal [Messages::Show.new], theirs.receive.first, "it owes no answer"
      ensure
        [ours, theirs].compact.each(&:close)
      end

      def test_a_server_without_workers_says_it_too
        with_server(APP, "-w", "0", env: { "DATABASE_URL" => postgresql }) do |server|
          during(server, requests: 3) do
            asked_until(server, "open" => 2, "in_use" => 2, "waiting" => 1)
          end

          assert_equal [[server.pid, "serving"]], asked(server)["workers"].map { |worker| worker.values_at("pid", "state") }
        end
      end

      private

      # While so many requests are there.
      def during(server, requests:)
        clients = Array.new(requests) { server.connect.tap { |socket| socket.write(request_for("/")) } }
        yield
      ensure
        server.write("over", "")
        clients&.each(&:read)
        clients&.each(&:close)
      end

      def asked_until(server, database)
        eventually(database) do
          asked(server).then { |now| now if now["total"]["database"] == database && (!block_given? || yield(now)) }
        end
      end

      # One look, as the command takes two.
      def asked(server) = JSON.parse(JSON.generate(StatusReport.new(ServerSelection.new(ControlSocket.servers, pid: server.pid).server).to_h))

      def postgresql
        ENV.fetch("TEST_DATABASE_URL")
      end
    end
  end
end
