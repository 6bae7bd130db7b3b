# frozen_string_literal: true

require_relative "../../helper"
require "json"

module Fairlead
  # A request that waits for a database, or for a connection to it, does not wait for just any socket or lock.
  class DatabaseTimesTest < Test
    needs :database

    APP = <<~'RUBY'
      %w[pg trilogy mysql2 active_record].each { |library| require library }
      ActiveRecord::Base.establish_connection("#{ENV.fetch("TEST_DATABASE_URL")}?pool=1&checkout_timeout=30")
      MARIADB = URI(ENV.fetch("TEST_MARIADB_URL"))
      def options = { host: MARIADB.host, port: MARIADB.port, username: MARIADB.user, password: MARIADB.password }

      QUERIES = {
        "/pg" => -> { PG.connect(ENV.fetch("TEST_DATABASE_URL")).exec("SELECT pg_sleep(0.25)") },
        "/trilogy" => -> { Trilogy.new(options).query("SELECT SLEEP(0.25)") },
        "/mysql2" => -> { Mysql2::Client.new(options).query("SELECT SLEEP(0.25)") },
        "/find" => -> { ActiveRecord::Base.connection_pool.with_connection { |one| one.select_value("SELECT pg_sleep(0.25)") } },
        "/connection" => lambda {
          began, pool = Queue.new, ActiveRecord::Base.connection_pool
          Thread.new do
            pool.with_connection do
              began.push(true)
              sleep(0.01) until pool.stat[:waiting] == 1
              sleep(0.25)
            end
          end
          began.pop
          pool.with_connection { nil }
        }
      }
      run ->(env) { QUERIES.fetch(env["PATH_INFO"]).call; [200, {}, ["done"]] }
    RUBY

    def test_databases_and_connections_have_kinds_of_their_own
      with_server(APP, "--workers", "1", "--access-log", "json") do |server|
        expected = { "/pg" => "database", "/trilogy" => "database", "/mysql2" => "database", "/find" => "database",
                     "/connection" => "connection" }
        expected.each_key { |path| server.get(path) }
        lines = eventually("the log") { server.log.lines.grep(/\A\{/).then { |all| all if all.size == expected.size } }

        lines.map { |line| JSON.parse(line) }.each do |entry|
          kind, seconds = entry["times"].except("turn", "gvl").max_by(&:last) # beside what a busy machine adds to each wait
          assert_equal expected.fetch(entry["target"]), kind, entry.inspect
          assert_operator seconds, :>, 0.2, entry.inspect
        end
      end
    end
  end
end
