# frozen_string_literal: true

require "pg"
require_relative "pool_interruptions"

module Fairlead
  # A deadline, a client that has gone, a timeout, or a cancelled task reach a fiber wherever it waits: the pool stays whole.
  # Covers active_record/leases.rb
  class DatabasePoolInterruptionTest < Test
    include Databases
    include PoolInterruptions
    needs :database

    OPERATIONS = [
      "opens a connection", "waits in line", "is called to open one", "checks in", "gives up what is recalled",
      "ends a request", "removes", "reaps", "disconnects all", "flushes", "spares what is idle", "waits at the gate"
    ].freeze
    HELD = [%w[1 fiber], %w[2 fiber], %w[2 thread]].freeze
    private_constant :OPERATIONS, :HELD

    %w[request_timeout client_gone cancel timeout timeouts].each do |kind|
      define_method(:"test_a_pool_stays_whole_wherever_a_#{kind}_arrives") do
        PG.connect(Databases.postgresql) do |administrator|
          administrator.exec("SET client_min_messages TO warning; DROP ROLE IF EXISTS one; CREATE ROLE one LOGIN PASSWORD 'one' CONNECTION LIMIT 1")
        end
        held = kind == "request_timeout" ? HELD : HELD.first(2)
        assert_whole_wherever(kind, OPERATIONS, held, "--database-connections", "10")
      end
    end
  end
end
