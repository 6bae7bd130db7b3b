# frozen_string_literal: true

require_relative "../helper"
require_relative "databases"
require_relative "operations"
require_relative "slow_network"

module Fairlead
  # While a driver waits, or goes through a large result, the other fibers of its thread go on.
  class YieldTest < Test
    include Databases

    # Seconds that a fiber that wakes every 5 ms may be late.
    BOUND = 0.025
    # A busy machine makes anybody late: one good run shows what the driver can do.
    TRIES = 8

    APP = <<~RUBY
      %w[pg mysql2 sqlite3 trilogy async active_record #{File.join(__dir__, "operations")}].each { |library| require library }
      run Fairlead::Operations
    RUBY

    class << self
      # One server, and the networks, for all tests.
      def server
        @server ||= begin
          server = ServerProcess.new(APP, "--workers", "1", env: networks, lint: false)
          Minitest.after_run { [server, *@networks].each { |process| process.respond_to?(:finish) ? process.finish : process.close } }
          server.start.wait_until_ready
        end
      end

      private

      def networks
        @networks = []
        { "POSTGRESQL" => Databases.postgresql, "MARIADB" => Databases.mariadb }.each_with_object({}) do |(name, url), env|
          env["#{name}_NEAR"] = url
          env["#{name}_FAR"] = through(url, delay: 0.06)
          env["#{name}_SLOW"] = through(url, rate: 40_000)
          env["#{name}_TLS"] = through(url, delay: 0.06, postgresql_tls: true) if name == "POSTGRESQL"
        end
      end

      def through(url, **options)
        @networks << (network = SlowNetwork.new(URI(url).port, **options))
        url.sub(":#{URI(url).port}/", ":#{network.port}/")
      end
    end

    %w[Pg Trilogy Mysql2 Sqlite RecordsPg RecordsTrilogy RecordsMysql2].each do |name|
      driver = Operations.const_get(name)
      driver.public_instance_methods.difference(Operations::Driver.public_instance_methods).each do |operation|
        define_method("test_#{name.downcase}_yields_#{operation}") do
          skip_without_databases
          late = Array.new(TRIES) do
            took, late = lateness("#{name}/#{operation}")
            break pass if late < BOUND && took.positive?

            late
          end
          assert_nil late, "late by so many seconds" if late.is_a?(Array)
        end
      end
    end

    private

    def lateness(path)
      response = self.class.server.get("/#{path}")

      assert_equal "200", response.code, self.class.server.log.lines.last(30).join
      response.body.split.map(&:to_f)
    end
  end
end
