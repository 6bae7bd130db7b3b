# frozen_string_literal: true

require_relative "../helper"

module Fairlead
  # What an app opens while it is loaded, before Fairlead's modules are prepended, works in requests as what it opens later.
  class BootTest < Test
    needs :database

    APP = <<~'RUBY'
      require "uri"
      %w[pg mysql2 trilogy sqlite3 redis connection_pool].each { |name| require name }
      maria = URI(ENV.fetch("MARIADB"))
      database = maria.path.delete_prefix("/")
      options = { host: maria.host, port: maria.port, username: maria.user, password: maria.password, database: }
      pg, mysql2, trilogy = PG.connect(ENV.fetch("POSTGRESQL")), Mysql2::Client.new(**options), Trilogy.new(options)
      statement = mysql2.prepare("SELECT ?")
      sqlite3 = SQLite3::Database.new(ENV.fetch("SQLITE3"))
      sqlite3.busy_handler { |_| sleep(0.001) }
      prepared = sqlite3.prepare("SELECT ?")
      redis = Redis.new(url: ENV.fetch("REDIS"))
      redis.ping
      pool = ConnectionPool.new(size: 1) { Redis.new(url: ENV.fetch("REDIS")) }
      pool.with(&:ping)
      open = { "pg" => pg, "mysql2" => mysql2, "trilogy" => trilogy }
      WAYS = {
        "pg" => ->(text) { pg.exec_params("SELECT $1::text", [text]).getvalue(0, 0) },
        "mysql2" => ->(text) { mysql2.query("SELECT '#{text}' AS text").first["text"] },
        "mysql2_async" => ->(text) { mysql2.query("SELECT '#{text}' AS text", async: true); mysql2.async_result.first["text"] },
        "mysql2_prepared" => ->(text) { statement.execute(text).first.values.first },
        "mysql2_ping" => ->(text) { mysql2.ping && mysql2.select_db(database) && text },
        "trilogy" => ->(text) { trilogy.query("SELECT '#{text}'").rows.first.first },
        "sqlite3" => ->(text) { sqlite3.execute("SELECT ?", [text]).first.first },
        "sqlite3_prepared" => ->(text) { prepared.bind_param(1, text); prepared.step.first.tap { prepared.reset! } },
        "redis" => ->(text) { redis.set("fairlead:boot", text) && redis.get("fairlead:boot") },
        "connection_pool" => ->(text) { pool.with { |one| one.set("fairlead:boot", text) && one.get("fairlead:boot") } }
      }
      SLEEPS = { "pg" => "SELECT pg_sleep(20)", "mysql2" => "SELECT SLEEP(20)", "trilogy" => "SELECT SLEEP(20)" }
      run(lambda do |env|
        _, way, interrupted = env["PATH_INFO"].split("/")
        next [200, {}, [WAYS.fetch(way).call(env["QUERY_STRING"])]] unless interrupted

        connection = open.fetch(way)
        begin
          Timeout.timeout(0.2) { connection.query(SLEEPS.fetch(way)) }
        rescue Timeout::Error => error
          [200, {}, ["#{error.class} #{connection.respond_to?(:finished?) ? connection.finished? : connection.closed?}"]]
        end
      end)
    RUBY

    WAYS = APP.scan(/^  "(\w+)" => ->\(text\)/).flatten.freeze

    { "in_the_process_that_has_loaded_the_app" => %w[--workers 0], "in_a_worker_that_has_loaded_the_app" => %w[--workers 1 --no-preload],
      "in_a_worker_for_which_another_process_has_loaded_the_app" => %w[--workers 1] }.each do |where, flags|
      define_method("test_what_was_opened_while_the_app_was_loaded_works_#{where}") do
        databases = { "POSTGRESQL" => "DATABASE", "MARIADB" => "MARIADB", "REDIS" => "REDIS" }
        databases.transform_values! { |name| ENV.fetch("TEST_#{name}_URL") }
        with_server(APP, *flags, env: { **databases, "SQLITE3" => "boot.sqlite3" }) do |server|
          # SQLite's own rule: it closes what a parent has opened.
          ways = WAYS.reject { |way| flags == %w[--workers 1] && way.start_with?("sqlite3") }
          answers = ways.to_h { |way| [way, 2.times.map { |number| server.get("/#{way}?#{number}").body }] }

          assert_equal(ways.to_h { |way| [way, %w[0 1]] }, answers)
          %w[pg mysql2 trilogy].each { |way| assert_equal "Timeout::Error true", server.get("/#{way}/interrupted").body, way }
        end
      end
    end
  end
end
