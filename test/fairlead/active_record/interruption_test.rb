# frozen_string_literal: true

require "json"
require "pg"
require_relative "../../drivers/databases"
require_relative "../../helper"

module Fairlead
  # A deadline, a client that has gone, a timeout, or a cancelled task reach a fiber wherever it waits: the pool stays whole.
  class DatabasePoolInterruptionTest < Test
    include Databases
    needs :database

    APP = <<~'RUBY'
      require "active_record"
      ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: ":memory:", max_connections: 1, checkout_timeout: 20)
      KEEP, LOCKED, UNLOCK = Queue.new, Queue.new, Queue.new

      run(lambda do |env|
        pool = ActiveRecord::Base.connection_pool
        answer = "done"
        case env["PATH_INFO"]
        when "/keep"
          Fairlead.request_timeout = nil if env["QUERY_STRING"] == "long"
          pool.with_connection { KEEP.pop }
        when "/give-back" then KEEP << true
        when "/query" then pool.with_connection { |connection| connection.execute("SELECT 1") }
        when "/lock"
          # Ruby unlocks what a thread has locked that ends: this one stays.
          Thread.new do
            pool.synchronize { (LOCKED << true) && UNLOCK.pop }
          ensure
            sleep
          end
          LOCKED.pop
        when "/unlock" then UNLOCK << true
        when "/stat" then answer = pool.stat.values_at(:busy, :idle, :waiting).join(" ")
        end
        [200, { "content-type" => "text/plain" }, [answer]]
      end)
    RUBY
    # Interrupts an operation at each of its waits.
    SWEEP = <<~'RUBY'
      require "json"
      require ENV.fetch("OPERATIONS")

      run(lambda do |env|
        name, kind, turns, other = env["QUERY_STRING"].split("&").map { |part| part.tr("-", " ") }
        url = name == "waits at the gate" ? ENV.fetch("FEW_URL") : ENV.fetch("DATABASE_URL")
        result = PoolOperations.new(url, name).sweep(kind, turns: turns.to_i, other:)
        [200, { "content-type" => "application/json" }, [JSON.generate(result)]]
      rescue Exception => error
        [500, { "content-type" => "text/plain" }, [error.full_message(highlight: false)]]
      end)
    RUBY
    OPERATIONS = [
      "opens a connection", "waits in line", "is called to open one", "checks in", "gives up what is recalled",
      "ends a request", "removes", "reaps", "disconnects all", "flushes", "spares what is idle", "waits at the gate"
    ].freeze
    # For how long others have the lock, and who.
    HELD = [%w[1 fiber], %w[2 fiber], %w[2 thread]].freeze
    private_constant :APP, :SWEEP, :OPERATIONS, :HELD

    def test_a_deadline_while_a_waiter_takes_the_lock_again_does_not_lock_the_pool
      with_server(APP, "--request-timeout", "3") do |server|
        holder = Thread.new { server.get("/keep?long") }
        eventually("it has the connection") { server.get("/stat").body == "1 0 0" }
        waiter = Thread.new { server.get("/query") }
        eventually("the other waits for it") { server.get("/stat").body == "1 0 1" }
        server.get("/lock") # which the waiter wants again whenever it looks whether to open another one

        assert_equal "504", waiter.value.code
        server.get("/give-back")
        server.get("/unlock")

        assert_equal "200", holder.value.code
        assert_whole server
      end
    end

    def test_a_deadline_while_a_connection_waits_to_be_checked_in_does_not_lose_it
      with_server(APP, "--request-timeout", "3") do |server|
        holder = Thread.new { server.get("/keep") }
        eventually("it has the connection") { server.get("/stat").body == "1 0 0" }
        server.get("/lock")
        server.get("/give-back")

        assert_equal "504", holder.value.code
        server.get("/unlock")
        assert_whole server
      end
    end

    %w[request_timeout client_gone cancel timeout timeouts].each do |kind|
      define_method(:"test_a_pool_stays_whole_wherever_a_#{kind}_arrives") do
        held = kind == "request_timeout" ? HELD : HELD.first(2)
        OPERATIONS.product(held) do |name, (turns, other)|
          response = sweeper.get("/?#{[name.tr(" ", "-"), kind, turns, other].join("&")}")

          assert_equal "200", response.code, response.body
          waits, broken = JSON.parse(response.body)

          assert_empty broken, "#{name}, #{turns} #{other}"
          assert_operator waits, :>=, 1, name
        end
      end
    end

    private

    def sweeper
      shared do
        PG.connect(Databases.postgresql) do |administrator|
          administrator.exec("DROP ROLE IF EXISTS one; CREATE ROLE one LOGIN PASSWORD 'one' CONNECTION LIMIT 1")
        end
        env = { "DATABASE_URL" => Databases.postgresql, "OPERATIONS" => File.expand_path("pool_operations", __dir__),
                "FEW_URL" => Databases.postgresql.sub(%r{//[^@]*@}, "//one:one@") }
        ServerProcess.new(SWEEP, "--database-connections", "10", lint: false, env:)
      end
    end

    def assert_whole(server)
      eventually("the connection is back") { server.get("/stat").body == "0 1 0" }
      assert_equal "200", server.get("/query").code
    end
  end
end
