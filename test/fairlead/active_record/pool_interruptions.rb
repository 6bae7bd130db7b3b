# frozen_string_literal: true

require "json"
require_relative "../../drivers/databases"
require_relative "../../helper"

module Fairlead
  # Tests, for any version of ActiveRecord: a pool stays whole wherever a request is interrupted.
  module PoolInterruptions
    APP = <<~'RUBY'
      require "active_record"
      ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: ":memory:", pool: 1, checkout_timeout: 20)
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
    private_constant :APP, :SWEEP

    def test_a_deadline_while_a_waiter_takes_the_lock_again_does_not_lock_the_pool
      with_server(APP, "--request-timeout", "3", env: bundle_environment) do |server|
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
      with_server(APP, "--request-timeout", "3", env: bundle_environment) do |server|
        holder = Thread.new { server.get("/keep") }
        eventually("it has the connection") { server.get("/stat").body == "1 0 0" }
        server.get("/lock")
        server.get("/give-back")

        assert_equal "504", holder.value.code
        server.get("/unlock")
        assert_whole server
      end
    end

    private

    # Of the servers' bundle.
    def bundle_environment = {}

    # @param operations [Array<String>] of PoolOperations, each interrupted by something of the kind at each of its waits.
    # @param held [Array<Array(String, String)>] for how long others have the lock, and who.
    def assert_whole_wherever(kind, operations, held, *flags)
      operations.product(held) do |name, (turns, other)|
        response = sweeper(*flags).get("/?#{[name.tr(" ", "-"), kind, turns, other].join("&")}")

        assert_equal "200", response.code, response.body
        waits, broken = JSON.parse(response.body)

        assert_empty broken, "#{name}, #{turns} #{other}"
        assert_operator waits, :>=, 1, name
      end
    end

    def sweeper(*flags)
      env = { "DATABASE_URL" => Databases.postgresql, "OPERATIONS" => File.expand_path("pool_operations", __dir__),
              "FEW_URL" => Databases.postgresql.sub(%r{//[^@]*@}, "//one:one@") }
      shared_server(SWEEP, *flags, name: :sweeper, lint: false, env: bundle_environment.merge(env))
    end

    def assert_whole(server)
      eventually("the connection is back") { server.get("/stat").body == "0 1 0" }
      assert_equal "200", server.get("/query").code
    end
  end
end
