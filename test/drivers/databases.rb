# frozen_string_literal: true

require "uri"

module Fairlead
  # The real database servers that bin/services keeps.
  module Databases
    class << self
      # @return [String] addresses, as for DATABASE_URL.
      def postgresql = ENV.fetch("TEST_DATABASE_URL", nil)

      def mariadb = ENV.fetch("TEST_MARIADB_URL", nil)

      # @return [String] MariaDB's address for Trilogy
      def trilogy = mariadb.sub("mysql2:", "trilogy:")

      # What Mysql2::Client and Trilogy are made with.
      def mariadb_settings
        address = URI(mariadb)
        { host: address.host, port: address.port, username: address.user, password: address.password,
          database: address.path.delete_prefix("/") }
      end
    end

    private

    def skip_without_databases
      return if Databases.postgresql && Databases.mariadb

      skip("No databases: run bin/test, or set TEST_DATABASE_URL and TEST_MARIADB_URL (bin/services url, url mariadb)")
    end
  end
end
