# frozen_string_literal: true

require_relative "../helper"
require_relative "databases"

module Fairlead
  # A request past its deadline: what it asked of the database ends there too.
  class DeadlineTest < Test
    include Databases
    needs :database

    # Seconds after the answer, or after the client has gone, until the database has ended the query.
    GONE = 0.2

    # Databases on a busy machine may need longer than two seconds to end a query, and it is no matter here how long.
    APP = <<~RUBY
      Fairlead::Drivers.send(:remove_const, :PATIENCE)
      Fairlead::Drivers.const_set(:PATIENCE, 20)
      require "active_record"
      ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL") + "?pool=1&checkout_timeout=10")
      POSTGRESQL = ENV.fetch("DATABASE_URL").start_with?("postgresql")
      SECONDS = ENV.fetch("SECONDS")
      SLEEP = POSTGRESQL ? "SELECT pg_sleep(\#{SECONDS})" : "SELECT SLEEP(\#{SECONDS})"
      TABLE = "deadlines_\#{SECONDS}"
      ID = POSTGRESQL ? "SELECT pg_backend_pid()" : "SELECT CONNECTION_ID()"

      run(lambda do |env|
        Async { (sleep(0.01) until File.exist?("seen")) || Fairlead.request_timeout = 0.001 } if env["QUERY_STRING"] == "overdue"
        ActiveRecord::Base.with_connection do |connection|
          case env["PATH_INFO"]
          when "/setup"
            connection.execute("DROP TABLE IF EXISTS \#{TABLE}")
            connection.execute("CREATE TABLE \#{TABLE} (id integer)")
          when "/sleep"
            connection.select_value(SLEEP)
          when "/transaction"
            connection.transaction do
              connection.execute("INSERT INTO \#{TABLE} VALUES (1)")
              connection.execute(SLEEP)
            end
          end
          count = connection.select_value("SELECT count(*) FROM \#{TABLE}")
          [200, { "content-type" => "text/plain" }, ["\#{connection.select_value(ID)} \#{count}"]]
        end
      end)
    RUBY

    # How long a query sleeps, by which the database knows whose it is.
    SECONDS = { "postgresql" => 20, "mysql2" => 20, "trilogy" => 21 }.freeze
    private_constant :SECONDS

    def test_the_query_ends_and_the_connection_is_another_one_then
      with_each_app do |server, queries|
        id = answer(server)
        overdue(server, "/sleep", queries)

        refute_equal id, answer(server)
      end
    end

    def test_a_client_that_goes_takes_its_query_with_it_where_that_is_wanted
      with_each_app("--cancel-abandoned") do |server, queries|
        id = answer(server)
        seconds_until_abandoned(server, "/sleep", queries)

        refute_equal id, answer(server)
        refute_includes server.log, "ClientGone"
      end
    end

    def test_the_transaction_is_rolled_back
      with_each_app do |server, queries|
        overdue(server, "/transaction", queries)

        assert_equal "0", answer(server).split.last
      end
    end

    SECONDS.each_key do |adapter|
      timing define_method("test_#{adapter}_ends_the_query_soon") {
        with_app(adapter, "--cancel-abandoned") do |server, queries|
          assert_median_below(GONE, runs: 3) { overdue(server, "/sleep", queries) }
          assert_median_below(GONE, runs: 3) { seconds_until_abandoned(server, "/sleep", queries) }
        end
      }
    end

    private

    def with_each_app(*flags, &) = each_at_once(SECONDS.keys) { |adapter| with_app(adapter, *flags, &) }

    def with_app(adapter, *flags)
      env = { "DATABASE_URL" => Databases.url(adapter), "SECONDS" => SECONDS.fetch(adapter).to_s }
      server = shared_server(APP, "--request-timeout", "60", *flags, name: [adapter, *flags], env:)
      server.get("/setup")
      yield server, sleepers(adapter, SECONDS.fetch(adapter))
    end

    def answer(server)
      response = server.get("/")

      assert_equal "200", response.code, server.log
      response.body
    end

    # Its time is up once the query runs.
    #
    # @return [Float] how many seconds after the answer of 504 the query was gone.
    def overdue(server, path, queries)
      request = Thread.new { server.get("#{path}?overdue") }
      eventually("the query runs") { queries.call == 1 }
      seen = server.write("seen", "")

      assert_equal "504", request.value.code
      seconds_until_gone(queries).tap { File.delete(seen) }
    end
  end
end
