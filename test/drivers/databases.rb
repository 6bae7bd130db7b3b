# frozen_string_literal: true

require "pg"
require "trilogy"
require "uri"

module Fairlead
  # The real database servers that bin/services keeps.
  module Databases
    class << self
      # @return [String] addresses, as for DATABASE_URL.
      def postgresql = ENV.fetch("TEST_DATABASE_URL")

      def mariadb = ENV.fetch("TEST_MARIADB_URL")

      # @param adapter [String] ActiveRecord's.
      # @return [String] where its server is.
      def url(adapter) = adapter == "postgresql" ? postgresql : mariadb.sub("mysql2:", "#{adapter}:")

      # What Mysql2::Client and Trilogy are made with.
      def mariadb_settings
        address = URI(mariadb)
        { host: address.host, port: address.port, username: address.user, password: address.password,
          database: address.path.delete_prefix("/") }
      end
    end

    private

    # @param adapter [String] ActiveRecord's.
    # @param seconds [Numeric, nil] nil: any.
    # @return [Proc] tells how many queries run on its server that sleep for so long.
    def sleepers(adapter, seconds = nil)
      like = "%SLEEP(#{"#{seconds})" if seconds}%"
      return mariadb_sleepers(like) unless adapter == "postgresql"

      connection = PG.connect(Databases.postgresql)
      query = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query ILIKE '#{like}' " \
              "AND pid <> pg_backend_pid()"
      -> { connection.exec(query).getvalue(0, 0).to_i }
    end

    def mariadb_sleepers(like)
      client = Trilogy.new(**Databases.mariadb_settings)
      query = "SELECT count(*) FROM information_schema.processlist WHERE info LIKE '#{like}' AND id <> CONNECTION_ID()"
      -> { client.query(query).rows.first.first }
    end

    # Has a client ask for what sleeps in the database, and go once it does.
    #
    # @return [Float] after how many seconds the database has ended that.
    def seconds_until_abandoned(server, path, sleepers)
      server.connect do |socket|
        socket.write("GET #{path} HTTP/1.1\r\nHost: a\r\n\r\n")
        eventually("the query runs") { sleepers.call == 1 }
      end
      seconds_until_gone(sleepers)
    end

    # Such a query ends by itself after 20 s: until then it must have been ended.
    def seconds_until_gone(sleepers) = duration { eventually("the query is gone", within: 15) { sleepers.call.zero? } }
  end
end
