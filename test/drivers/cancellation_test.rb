# frozen_string_literal: true

require_relative "../helper"
require_relative "databases"
require "async"
require "mysql2"
require "pg"
require "stringio"
require "timeout"
require "trilogy"
require "fairlead/drivers/mysql2"
require "fairlead/drivers/postgresql"
require "fairlead/drivers/trilogy"

module Fairlead
  # A fiber is interrupted while it waits in a driver: the server ends the query, and what becomes of the connection.
  class CancellationTest < Test
    include Databases
    needs :database

    # Seconds until the query is gone from the server.
    BOUND = 0.1
    QUERIES = {
      "postgresql" => proc { PG.connect(Databases.postgresql).exec("SELECT pg_sleep(20)") },
      "mysql2" => proc { Mysql2::Client.new(**Databases.mariadb_settings).query("SELECT SLEEP(20)") },
      "trilogy" => proc { Trilogy.new(**Databases.mariadb_settings).query("SELECT SLEEP(20)") }
    }.freeze
    private_constant :BOUND, :QUERIES
    # Databases on a busy machine may need longer than the two seconds.
    Drivers.send(:remove_const, :PATIENCE)
    Drivers.const_set(:PATIENCE, 6)

    QUERIES.each do |adapter, query|
      timing define_method("test_a_query_of_#{adapter}_is_gone_within_a_tenth_of_a_second") {
        Sync { assert_median_below(BOUND) { interrupt(adapter, &query) } }
      }
    end

    {
      "query" => ->(connection) { connection.exec("SELECT pg_sleep(20)") },
      "statement_with_parameters" => ->(connection) { connection.exec_params("SELECT pg_sleep($1)", [20]) },
      "prepared_statement" => lambda { |connection|
        connection.prepare("sleep", "SELECT pg_sleep($1)")
        connection.exec_prepared("sleep", [20])
      },
      "statement_within_a_transaction" => ->(connection) { connection.transaction { connection.exec("SELECT pg_sleep(20)") } },
      "query_whose_rows_are_on_their_way" => lambda { |connection|
        connection.exec("SELECT repeat('x', 10000), pg_sleep(0.001) FROM generate_series(1, 20000)")
      },
      "query_that_was_sent_before" => lambda { |connection|
        connection.send_query("SELECT pg_sleep(20)")
        connection.get_last_result
      },
      "copy_to_the_app" => lambda { |connection|
        connection.copy_data("COPY (SELECT pg_sleep(20)) TO STDOUT", PG::TextDecoder::CopyRow.new) { connection.get_copy_data }
      }
    }.each do |name, work|
      define_method("test_pg_ends_a_#{name}_and_closes_the_connection") do
        Sync do
          connection = PG.connect(Databases.postgresql)
          interrupt("postgresql") { work.call(connection) }

          assert_predicate connection, :finished?
        end
      end
    end

    def test_pg_lets_whoever_opened_a_connection_close_it_after_an_interruption
      ways = {
        block: -> { PG.connect(Databases.postgresql) { |connection| Timeout.timeout(0.1) { connection.exec("SELECT pg_sleep(20)") } } },
        close: lambda do
          connection = PG.connect(Databases.postgresql)
          begin
            Timeout.timeout(0.1) { connection.exec("SELECT pg_sleep(20)") }
          ensure
            connection.close
          end
        end
      }
      Sync { ways.each { |name, way| assert_raises(Timeout::Error, name.name) { way.call } } }
      assert_raises(PG::ConnectionBad) { PG.connect(Databases.postgresql).tap(&:close).close }
    end

    def test_pg_raises_the_error_about_a_connection_that_was_closed_before
      connection = PG.connect(Databases.postgresql).tap(&:close)
      error = assert_raises(PG::ConnectionBad) do
        {}.fetch(:missing)
      rescue KeyError
        connection.transaction { nil }
      end
      assert_includes error.message, "closed"
    end

    def test_pg_ends_a_copy_to_the_server_that_is_interrupted_and_closes_the_connection
      Sync do
        connection = PG.connect(Databases.postgresql)
        connection.exec("CREATE TEMPORARY TABLE copied (number integer)")
        copy = proc do
          connection.copy_data("COPY copied FROM STDIN", PG::TextEncoder::CopyRow.new) { connection.put_copy_data([1]) && sleep }
        end

        assert_raises(Timeout::Error) { Timeout.timeout(0.1, &copy) }
        assert_predicate connection, :finished?
      end
    end

    def test_pg_says_which_query_it_could_not_end
      Sync do
        Log.io = StringIO.new
        connection = PG.connect(Databases.postgresql)
        connection.define_singleton_method(:cancel) { "cannot be reached" }
        task = Async { connection.exec("SELECT pg_sleep(1)") }
        task.stop

        assert_predicate connection, :finished?
        assert_match(/could not be ended at 127\.0\.0\.1:\d+ \(process \d+\): cannot be reached\. .*client_connection_check_interval/,
                     Log.io.string)
      end
    ensure
      Log.io = $stderr
    end

    def test_pg_closes_a_connection_in_time_whose_server_does_not_answer
      Sync do
        Log.io = StringIO.new
        connection = PG.connect(Databases.postgresql)
        pid = connection.backend_pid
        connection.define_singleton_method(:cancel) { sleep }
        task = Async { connection.exec("SELECT pg_sleep(60)") }
        took = duration do
          task.cancel
          task.wait
        end

        assert_predicate connection, :finished?
        assert_includes (Drivers::PATIENCE - 1)..(Drivers::PATIENCE + 20), took
        assert_includes Log.io.string, "no answer in"
        PG.connect(Databases.postgresql) { |other| other.exec("SELECT pg_terminate_backend(#{pid})") }
      end
    ensure
      Log.io = $stderr
    end

    { "between_two_rows" => ->(_) {}, "at_a_row" => ->(_) { sleep 20 } }.each do |where, use|
      define_method("test_pg_ends_a_query_whose_rows_are_streamed_#{where}_and_closes_the_connection") do
        Sync do
          connection = PG.connect(Databases.postgresql)
          interrupt("postgresql") do
            connection.send_query("SELECT pg_sleep(0.01) FROM generate_series(1, 2000)")
            connection.set_single_row_mode
            connection.get_result.stream_each(&use)
          end

          assert_predicate connection, :finished?
        end
      end

      define_method("test_mysql2_ends_a_query_whose_rows_are_streamed_#{where}_and_closes_the_connection") do
        Sync do
          client = nil
          interrupt("mysql2") do
            client = Mysql2::Client.new(**Databases.mariadb_settings)
            client.query("SELECT SLEEP(0.01) FROM seq_1_to_2000", stream: true, cache_rows: false).each(&use)
          end

          assert_predicate client, :closed?
        end
      end
    end

    # pg rolls back, which fails on a closed connection.
    { "of_its_own" => nil, "with_the_apps_error" => Class.new(StandardError) }.each do |name, error|
      define_method("test_pg_a_timeout_#{name}_reaches_whoever_began_the_transaction") do
        Sync do
          connection = PG.connect(Databases.postgresql)

          assert_raises(error || Timeout::Error) do
            connection.transaction { Timeout.timeout(0.1, error) { connection.exec("SELECT pg_sleep(20)") } }
          end
          assert_predicate connection, :finished?
        end
      end
    end

    def test_pg_rolls_back_by_itself_what_is_interrupted_between_two_statements
      Sync do
        connection = PG.connect(Databases.postgresql)

        assert_raises(Timeout::Error) { Timeout.timeout(0.1) { connection.transaction { sleep } } }
        assert_equal PG::PQTRANS_IDLE, connection.transaction_status
      end
    end

    def test_an_error_of_the_query_itself_is_no_interruption
      Sync do
        connection = PG.connect(Databases.postgresql)
        argument = Object.new
        argument.define_singleton_method(:to_s) { raise "no text" }

        assert_raises(PG::DivisionByZero) { connection.exec("SELECT 1 / 0") }
        assert_raises(RuntimeError) { connection.exec_params("SELECT $1", [argument]) }
        assert_equal "7", connection.exec("SELECT 7").getvalue(0, 0)
      end
    end

    {
      "query" => ->(client) { client.query("SELECT SLEEP(20)") },
      "prepared_statement" => ->(client) { client.prepare("SELECT SLEEP(?)").execute(20) },
      "query_whose_rows_are_on_their_way" => ->(client) { client.query("SELECT REPEAT('x', 10000), SLEEP(0.001) FROM seq_1_to_20000") }
    }.each do |name, work|
      define_method("test_mysql2_ends_a_#{name}_and_closes_the_connection") do
        Sync do
          client = nil
          interrupt("mysql2") { work.call(client = Mysql2::Client.new(**Databases.mariadb_settings)) }

          assert_predicate client, :closed?
        end
      end
    end

    def test_a_query_of_mysql2_is_interrupted_like_any_other_though_its_client_is_closed_by_then
      Sync do
        client = Mysql2::Client.new(**Databases.mariadb_settings)
        queries = sleepers("mysql2")
        task = Async { client.query("SELECT SLEEP(20)") }
        eventually("the query runs") { queries.call == 1 }
        client.close
        task.cancel
        task.wait

        assert_predicate task, :cancelled?
        seconds_until_gone(queries)
      end
    end

    # The statement's thread may still use it.
    def test_mysql2_does_not_free_a_statement_whose_client_is_given_up
      Sync do
        statement = Mysql2::Client.new(**Databases.mariadb_settings).prepare("SELECT SLEEP(20)")
        interrupt("mysql2") do
          statement.execute
        ensure
          statement.close
        end

        refute_predicate statement, :closed?
      end
    end

    def test_a_statement_of_mysql2_is_closed_once_it_has_run
      Sync do
        client = Mysql2::Client.new(**Databases.mariadb_settings)
        statement = client.prepare("SELECT SLEEP(1)")
        task, closing = while_it_runs(statement) { statement.close }

        closing.wait
        assert_kind_of Mysql2::Result, task.wait
        assert_predicate statement, :closed?
        assert_equal [1], client.query("SELECT 1").to_a.flat_map(&:values)
      end
    end

    def test_statements_of_mysql2_that_fibers_close_at_once_are_all_closed
      Sync do
        client = Mysql2::Client.new(**Databases.mariadb_settings)
        statements = Array.new(10) { |number| client.prepare("SELECT #{number}") }
        statements.map { |statement| Async { statement.close } }.each(&:wait)

        assert_equal 10, statements.count(&:closed?)
      end
    end

    # mysql2 returns nil for an INSERT that is done.
    def test_what_waits_for_a_client_of_mysql2_that_is_closed_fails
      Sync do
        client = Mysql2::Client.new(**Databases.mariadb_settings)
        other = client.prepare("SELECT 1")
        running, closing = while_it_runs(client.prepare("SELECT SLEEP(2)")) do
          asks = [-> { other.execute }, -> { client.ping }, -> { client.prepare("SELECT 2") }, -> { client.query("DO 1 # #{"x" * 40_000}") }]
          waiting = asks.map { |ask| Async { outcome(&ask) } }
          client.close
          waiting.map(&:wait)
        end

        assert_equal [Mysql2::Error::ConnectionError] * 4, closing.wait.map(&:class)
        assert_kind_of Mysql2::Error, running.wait
        seconds_until_gone(sleepers("mysql2"))
      end
    end

    def test_a_client_of_mysql2_that_is_given_up_while_a_fiber_closes_a_statement_is_closed_at_once
      Sync do
        client = Mysql2::Client.new(**Databases.mariadb_settings)
        socket = File.readlink("/proc/self/fd/#{client.socket}")
        client.fairlead_close { client.close }

        refute_includes sockets, socket
      end
    end

    def test_a_client_of_mysql2_may_be_closed_while_a_statement_runs
      Sync do
        client = Mysql2::Client.new(**Databases.mariadb_settings)
        task, closing = while_it_runs(client.prepare("SELECT SLEEP(2)")) { client.close }

        assert_kind_of Mysql2::Error, task.wait
        closing.wait
        assert_predicate client, :closed?
        assert_raises(Mysql2::Error) { client.query("SELECT 1") }
        seconds_until_gone(sleepers("mysql2"))
      end
    end

    def test_a_query_past_mysql2s_own_read_timeout_ends_on_the_server_and_the_connection_is_of_no_use
      Sync do
        client = Mysql2::Client.new(**Databases.mariadb_settings, read_timeout: 5)

        assert_raises(Mysql2::Error::TimeoutError) { client.query("SELECT SLEEP(100)") }
        seconds_until_gone(sleepers("mysql2"))
      end
    end

    def test_trilogy_ends_a_query_and_closes_the_connection
      Sync do
        client = nil
        interrupt("trilogy") { (client = Trilogy.new(**Databases.mariadb_settings)).query("SELECT SLEEP(20)") }

        assert_predicate client, :closed?
      end
    end

    def test_who_is_interrupted_while_trilogy_connects_leaves_the_reactor_nothing_to_wake_up_for
      listener = TCPServer.new("127.0.0.1", 0)
      Sync do
        task = Async { Trilogy.new(**Databases.mariadb_settings, port: listener.local_address.ip_port) }
        silent = listener.accept
        sleep 0.01
        task.cancel
        task.wait
        silent.close
        used = -> { Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) }
        before = used.call
        sleep 0.2
        assert_operator used.call - before, :<, 0.1
      end
    end

    def test_a_client_of_trilogy_that_refuses_to_be_closed_during_a_query_is_not_lost
      Sync do
        client = Trilogy.new(**Databases.mariadb_settings)
        queries = sleepers("trilogy")
        task = Async { client.query("SELECT SLEEP(1)").to_a }
        eventually("the query runs") { queries.call == 1 }
        begin
          client.close
        rescue Trilogy::SynchronizationError
          task.wait

          refute_predicate client, :fairlead_lost?
        end
      end
    end

    def test_trilogy_says_what_is_wrong_with_a_connection
      Sync do
        error = assert_raises(Trilogy::Error) { Trilogy.new(**Databases.mariadb_settings, password: "guessed") }

        assert_match(/Access denied/, error.message)
      end
    end

    private

    # @return [Object] what the block returns, or the error of the driver that it raises.
    def outcome
      yield
    rescue Mysql2::Error => error
      error
    end

    # @return [Array<String>] what this process has open.
    def sockets = Dir.glob("/proc/self/fd/*").filter_map { |path| File.readlink(path) if File.symlink?(path) }

    # @return [Array<Async::Task>] one that executes a prepared statement of mysql2, and one that does the block meanwhile.
    def while_it_runs(statement, &)
      queries = sleepers("mysql2")
      running = Async { outcome { statement.execute } }
      eventually("the statement runs") { queries.call == 1 }
      [running, Async(&)]
    end

    # Interrupts what the block does once the server is at it, and waits until the server is no longer.
    #
    # @return [Float] the seconds that this took.
    def interrupt(adapter, &)
      queries = sleepers(adapter)
      task = Async(&)
      eventually("the query runs") { queries.call == 1 }
      took = duration do
        task.cancel
        seconds_until_gone(queries)
      end
      task.wait
      assert_predicate task, :cancelled?
      took
    end
  end
end
