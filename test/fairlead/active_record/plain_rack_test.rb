# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # A plain Rack app that uses ActiveRecord without Rails.
  class PlainRackTest < Test
    needs :database

    REQUESTS = 100

    # Each request works with the one connection that it has leased and never gives back.
    APP = <<~RUBY
      require "active_record"
      ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL") + "?pool=10&checkout_timeout=20")

      run(lambda do |env|
        connection = ActiveRecord::Base.lease_connection
        number = env["QUERY_STRING"].to_i
        first = connection.select_value("SELECT set_config('fairlead.number', '\#{number}', false)")
        connection.select_value("SELECT pg_sleep(0.01)")
        second = connection.select_value("SELECT current_setting('fairlead.number')")
        pool = ActiveRecord::Base.connection_pool
        held = pool.connections.count { |other| other.owner == Fiber.current }
        [200, { "content-type" => "text/plain" }, [[number, first, second, held, pool.stat[:busy]].join(" ")]]
      end)
    RUBY

    def test_each_request_has_a_connection_of_its_own_and_returns_it
      with_server(APP, env: { "DATABASE_URL" => postgresql }) do |server|
        answers = (1..REQUESTS).map { |n| Thread.new { server.get("/?#{n}").body } }.map(&:value)

        answers.each.with_index(1) do |answer, n|
          assert_equal [n, n, n, 1], answer.split.map(&:to_i).first(4)
        end
        # A lease may be given back just after the answer.
        eventually("all are back but that of the one that asks") { server.get("/?0").body.split.last.to_i == 1 }
      end
    end

    def test_active_record_may_be_loaded_by_the_first_request
      app = APP.sub(/\A(.*\n.*\n)/, "").sub("connection = ", <<~RUBY.chomp << "\n    connection = ")
        unless defined?(ActiveRecord)
            #{APP.lines.first(2).join("    ")}  end
      RUBY
      with_server(app, env: { "DATABASE_URL" => postgresql }) do |server|
        2.times { assert_equal %w[1 1 1 1], server.get("/?1").body.split.first(4) }
        eventually("they are back") { server.get("/?1").body == "1 1 1 1 1" }
        answers = (1..20).map { |n| Thread.new { server.get("/?#{n}").body } }.map(&:value)

        answers.each.with_index(1) { |answer, n| assert_equal [n, n, n, 1], answer.split.map(&:to_i).first(4) }
      end
    end

    def test_a_connection_that_the_boot_has_opened_is_not_shared_by_the_workers
      app = APP.sub("run(", "ActiveRecord::Base.lease_connection.select_value(\"SELECT 1\")\n\nrun(")
      with_server(app, "--workers", "2", env: { "DATABASE_URL" => postgresql }) do |server|
        answers = (1..REQUESTS).map { |n| Thread.new { server.get("/?#{n}").body } }.map(&:value)

        answers.each.with_index(1) { |answer, n| assert_equal [n, n, n, 1], answer.split.map(&:to_i).first(4) }
      end
    end

    def test_a_version_that_knows_too_little_of_fibers_is_refused
      app = APP.sub("\n", "\ndef ActiveRecord.gem_version = Gem::Version.new(\"7.0.10\")\n")
      server = with_server(app, ready: false, env: { "DATABASE_URL" => "postgresql://127.0.0.1/nowhere" })

      refute_predicate server.wait_for_end, :success?
      assert_match(/^fairlead: ActiveRecord 7\.0\.10 cannot be served by fibers: Rails 7\.1 or later can\.$/, server.log)
    end

    private

    def postgresql
      ENV.fetch("TEST_DATABASE_URL")
    end
  end
end
