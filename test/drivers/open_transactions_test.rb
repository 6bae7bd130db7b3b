# frozen_string_literal: true

require_relative "../helper"
require_relative "databases"

module Fairlead
  # What a request leaves open at its end, behind ActiveRecord's back: the next one finds a clean connection.
  # Covers active_record/open_transactions.rb
  class OpenTransactionsTest < Test
    include Databases
    needs :database

    APP = <<~RUBY
      require "active_record"
      ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL"))
      COUNT = "SELECT count(*) FROM left_open"

      run(lambda do |env|
        text = ActiveRecord::Base.with_connection do |connection|
          case env["PATH_INFO"]
          when "/setup"
            connection.execute("DROP TABLE IF EXISTS left_open")
            connection.execute("CREATE TABLE left_open (id integer)")
          when "/raw", "/leased"
            connection = ActiveRecord::Base.lease_connection if env["PATH_INFO"] == "/leased"
            connection.execute("BEGIN")
            connection.execute("INSERT INTO left_open VALUES (1)")
          when "/raw-connection"
            raw = connection.raw_connection
            raw.respond_to?(:exec) ? raw.exec("BEGIN") : raw.query("BEGIN")
          when "/insert" then connection.execute("INSERT INTO left_open VALUES (2)")
          when "/finish" then connection.raw_connection.then { |raw| raw.respond_to?(:finish) ? raw.finish : raw.close }
          end
          connection.select_value(COUNT).to_s
        end
        [200, { "content-type" => "text/plain" }, [text]]
      end)
    RUBY

    %w[postgresql mysql2 trilogy sqlite3].each do |adapter|
      %w[/raw /leased].each do |path|
        define_method("test_#{adapter}_rolls_back_what_is_begun_by_execute_at#{path.tr("/", "_")}") do
          with_app(adapter) do |server|
            server.get(path)

            assert_equal "1", server.get("/insert").body
            assert_equal "1", server.get("/").body
            assert_includes server.log, "within an open database transaction"
          end
        end
      end

      next if adapter == "sqlite3"

      define_method("test_#{adapter}_rolls_back_what_is_begun_on_the_raw_connection") do
        with_app(adapter) do |server|
          server.get("/raw-connection")
          server.get("/insert")

          assert_equal "1", server.get("/").body
        end
      end

      define_method("test_#{adapter}_a_connection_that_its_driver_has_closed_is_replaced") do
        with_app(adapter) do |server|
          server.get("/finish")

          3.times { assert_equal "200", server.get("/").code }
        end
      end
    end

    private

    def with_app(adapter)
      url = adapter == "sqlite3" ? "sqlite3:left_open.sqlite3" : Databases.url(adapter)
      server = shared_server(APP, name: adapter.to_sym, env: { "DATABASE_URL" => "#{url}?pool=1&checkout_timeout=5" })

      assert_equal "200", server.get("/setup").code, server.log
      yield server
    end
  end
end
