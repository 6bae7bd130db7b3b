# frozen_string_literal: true

require_relative "../helper"
require_relative "databases"
require_relative "operations"
require_relative "slow_network"

module Fairlead
  # While a driver waits, or goes through a large result, the other fibers of its thread go on.
  # Covers drivers.rb, drivers/mysql2.rb, drivers/postgresql.rb
  # Covers drivers/trilogy.rb, drivers/row_pacing.rb
  class YieldTest < Test
    include Databases
    needs :database

    # Seconds that a fiber that wakes every 5 ms may be late. The garbage collector's time and the time in which the process
    # had no processor do not count. An operation that yields nothing makes the fiber late by LENGTH.
    BOUND = 0.1
    # The same where nothing else runs, for results whose rows are read in slices.
    BOUND_ALONE = 0.025
    IN_SLICES = /\Alarge.*result/
    # Seconds that an operation takes at least: it has done what it should, and could have been late.
    LENGTH = Operations::LONG * 0.9 # without the last piece of a result that comes slowly
    DELAY = 0.07 # of a slow network, each way
    HESITATION = 0.2 # of one that keeps each connection waiting first
    private_constant :BOUND, :BOUND_ALONE, :IN_SLICES, :LENGTH, :DELAY, :HESITATION

    APP = <<~RUBY
      %w[pg mysql2 sqlite3 trilogy async active_record #{File.join(__dir__, "operations")}].each { |library| require library }
      run Fairlead::Operations
    RUBY

    class << self
      # One server, and the networks, for all tests.
      def server
        @server ||= begin
          server = ServerProcess.new(APP, "--workers", "1", env: networks)
          Minitest.after_run do
            server.finish
            @networks.each(&:close)
          end
          server.start.wait_until_ready
        end
      end

      private

      def networks
        @networks = []
        { "POSTGRESQL" => Databases.postgresql, "MARIADB" => Databases.mariadb }.each_with_object({}) do |(name, url), env|
          env["#{name}_NEAR"] = url
          env["#{name}_FAR"] = through(url, delay: DELAY)
          env["#{name}_HESITANT"] = through(url, delay: DELAY, hesitation: HESITATION)
          env["#{name}_SLOW"] = through(url, rate: (20_000 / Operations::LONG).round)
          env["#{name}_NARROW"] = through(url, rate: 8_000_000)
          env["#{name}_SILENT"] = at_port(url, silent_port)
          env["#{name}_TLS"] = through(url, delay: DELAY, hesitation: HESITATION, postgresql_tls: true) if name == "POSTGRESQL"
        end
      end

      def through(url, **options)
        @networks << (network = SlowNetwork.new(URI(url).port, **options))
        at_port(url, network.port)
      end

      # @return [Integer] where the system answers nobody who connects: as many as may wait to be accepted do so already.
      def silent_port
        @listener ||= Addrinfo.tcp("127.0.0.1", 0).listen(0).tap do |listener|
          @waiting = Array.new(4) { Socket.new(:INET, :STREAM) }
          @waiting.each { |socket| socket.connect_nonblock(listener.local_address, exception: false) }
        end
        @listener.local_address.ip_port
      end

      def at_port(url, port) = url.sub(":#{URI(url).port}/", ":#{port}/")
    end

    %w[Pg Trilogy Mysql2 Sqlite RecordsPg RecordsTrilogy RecordsMysql2].each do |name|
      driver = Operations.const_get(name)
      operations = driver.public_instance_methods - Operations::Driver.public_instance_methods
      operations.difference(Operations::HOLDS_UP.fetch(name, [])).each do |operation|
        define_method("test_#{name.downcase}_yields_#{operation}") { assert_operator lateness("#{name}/#{operation}"), :<, BOUND }
        next unless operation.match?(IN_SLICES)

        timing define_method("test_#{name.downcase}_yields_every_few_milliseconds_#{operation}") {
          assert_operator lateness("#{name}/#{operation}"), :<, BOUND_ALONE
        }
      end
    end

    Operations::HOLDS_UP.each do |name, operations|
      operations.each do |operation|
        timing define_method("test_#{name.downcase}_still_holds_others_up_as_the_guide_says_#{operation}") {
          assert_operator lateness("#{name}/#{operation}", in_all: true), :>, BOUND, "It yields now: guides/databases.md is to say so."
        }
      end
    end

    private

    # @param in_all [Boolean] whether the time that other processes and the garbage collector took counts too
    # @return [Float] for how many seconds the other fiber was kept waiting at most.
    def lateness(path, in_all: false)
      response = self.class.server.get("/#{path}")

      assert_equal "200", response.code, self.class.server.log.lines.last(30).join
      took, late, held = response.body.split.map(&:to_f)

      assert_operator took, :>=, LENGTH
      in_all ? held : late
    end
  end
end
