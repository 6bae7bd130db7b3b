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
    # Seconds that an operation takes at least: it has done what it should, and could have been late.
    LENGTH = Operations::LONG * 0.9 # without the last piece of a result that comes slowly
    DELAY = 0.04 # of the slow network, each way
    ONCE = %i[connect reconnect tls_handshake first_query large_statement copy_in_far_away].freeze
    # Those that cannot be repeated wait for a round trip at least; for the server's answer to these two nobody waits.
    LEAST = { **ONCE.to_h { |name| [name, 2 * DELAY] }, close: 0, close_statement: 0 }.freeze
    private_constant :LENGTH, :DELAY, :ONCE, :LEAST

    APP = <<~RUBY
      %w[pg mysql2 sqlite3 trilogy async active_record #{File.join(__dir__, "operations")}].each { |library| require library }
      run Fairlead::Operations
    RUBY

    class << self
      # One server, and the networks, for all tests.
      def server
        @server ||= begin
          server = ServerProcess.new(APP, "--workers", "1", env: networks)
          Minitest.after_run { [server, *@networks].each { |process| process.respond_to?(:finish) ? process.finish : process.close } }
          server.start.wait_until_ready
        end
      end

      private

      def networks
        @networks = []
        { "POSTGRESQL" => Databases.postgresql, "MARIADB" => Databases.mariadb }.each_with_object({}) do |(name, url), env|
          env["#{name}_NEAR"] = url
          env["#{name}_FAR"] = through(url, delay: DELAY)
          env["#{name}_SLOW"] = through(url, rate: 40_000) # 20,000 bytes in Operations::LONG
          env["#{name}_TLS"] = through(url, delay: DELAY, postgresql_tls: true) if name == "POSTGRESQL"
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
            assert_operator took, :>=, LEAST.fetch(operation, LENGTH)
            break pass if late < BOUND

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
