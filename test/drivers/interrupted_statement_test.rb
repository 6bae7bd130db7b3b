# frozen_string_literal: true

require_relative "../helper"
require_relative "databases"
require_relative "slow_network"
require "async"
require "mysql2"
require "pg"
require "stringio"
require "trilogy"
require "fairlead/drivers/mysql2"
require "fairlead/drivers/postgresql"
require "fairlead/drivers/trilogy"

module Fairlead
  # A statement is interrupted before or after the server has done it: nobody knows which, and the connection is closed. The
  # database itself is asked.
  # Covers drivers/mysql2/interruption.rb
  class InterruptedStatementTest < Test
    include Databases
    needs :database

    # Statement => what comes before it.
    STATEMENTS = {
      "BEGIN" => [],
      "SELECT 1" => [],
      "INSERT INTO interrupted VALUES (1)" => ["BEGIN"],
      "COMMIT" => ["BEGIN", "INSERT INTO interrupted VALUES (1)"],
      "ROLLBACK" => ["BEGIN", "INSERT INTO interrupted VALUES (1)"],
      "SAVEPOINT one" => ["BEGIN"],
      "RELEASE SAVEPOINT one" => ["BEGIN", "SAVEPOINT one"],
      "ROLLBACK TO SAVEPOINT one" => ["BEGIN", "SAVEPOINT one"]
    }.freeze
    INSERT = STATEMENTS.keys[2]
    # Seconds that each piece takes on its way, and after which the server most likely has done it.
    DELAY = 0.01
    LATER = 0.05
    # When, and how many times. The second one meets the clean-up.
    MOMENTS = { "before the server has it" => [0, 1], "after the server has done it" => [LATER, 1], "twice" => [LATER, 2] }.freeze
    # pg's methods that ask the server nothing. Those of large objects and internal_encoding= wait in libpq, where nothing interrupts
    # them.
    REST = %i[
      backend_pid check_socket conndefaults conndefaults_hash connection_needs_password connection_used_password conninfo conninfo_hash
      consume_input db embed_params enter_pipeline_mode error_message exit_pipeline_mode external_encoding field_name_type
      field_name_type= finished? full_protocol_version get_client_encoding host hostaddr inspect internal_encoding internal_encoding=
      is_busy make_empty_pgresult nonblocking? notifies notifies_wait options parameter_status pass pipeline_status port protocol_version
      quote_ident reset_start server_version set_chunked_rows_mode set_error_context_visibility set_error_verbosity
      set_notice_processor set_notice_receiver set_single_row_mode socket socket_io ssl_attribute ssl_attribute_names ssl_attributes
      ssl_in_use? status trace tty untrace user wait_for_notify
    ].freeze
    private_constant :INSERT, :DELAY, :LATER, :MOMENTS, :REST

    # Of each driver, what is asked of it here.
    PostgreSQL = Struct.new(:connection, :id) do
      def self.open = PG.connect(InterruptedStatementTest.slowly(Databases.postgresql)).then { |one| new(one, one.backend_pid) }
      def run(sql) = connection.exec(sql)
      def closed? = connection.finished?
      def close = (connection.finish unless closed?)
    end

    MySQL = Struct.new(:connection, :id) do
      def self.settings = { **Databases.mariadb_settings, port: URI(InterruptedStatementTest.slowly(Databases.mariadb)).port }

      def run(sql) = connection.query(sql)
      def closed? = connection.closed?
      def close = connection.close
    end

    DRIVERS = {
      "pg" => -> { PostgreSQL.open },
      "mysql2" => -> { Mysql2::Client.new(MySQL.settings).then { |client| MySQL.new(client, client.thread_id) } },
      "trilogy" => -> { Trilogy.new(MySQL.settings).then { |client| MySQL.new(client, client.fairlead_session.id) } }
    }.freeze

    # Without a network's delay some answers are there before anybody waits for them.
    def self.slowly(url)
      network = networks[url] ||= SlowNetwork.new(URI(url).port, delay: DELAY).tap { |one| Minitest.after_run { one.close } }
      url.sub(":#{URI(url).port}/", ":#{network.port}/")
    end

    # @return [Hash{String => SlowNetwork}]
    def self.networks = (@networks ||= {})

    def setup
      super
      Log.io = StringIO.new
      @postgresql = PG.connect(Databases.postgresql)
      @mariadb = Trilogy.new(**Databases.mariadb_settings)
      [@postgresql.method(:exec), @mariadb.method(:query)].each do |run|
        run.call("DROP TABLE IF EXISTS interrupted")
        run.call("CREATE TABLE interrupted (id integer)")
      end
    end

    def teardown
      @postgresql&.finish
      @mariadb&.close
      Log.io = $stderr
      super
    end

    DRIVERS.each do |name, open|
      STATEMENTS.each do |statement, before|
        MOMENTS.each do |moment, (pause, times)|
          define_method("test_#{name} #{statement} interrupted #{moment}".tr(" ", "_")) do
            Sync do
              driver = open.call
              before.each { |sql| driver.run(sql) }
              interrupt(pause, times) { driver.run(statement) }

              assert_closed driver
            ensure
              driver&.close
            end
          end
        end
      end
    end

    # What asks PostgreSQL, beside statements. The portal and the statement need not be there.
    {
      "describe_prepared" => ->(pg) { pg.describe_prepared("none") }, "describe_portal" => ->(pg) { pg.describe_portal("none") },
      "async_describe_prepared" => ->(pg) { pg.async_describe_prepared("none") },
      "async_describe_portal" => ->(pg) { pg.async_describe_portal("none") },
      "client_encoding=" => ->(pg) { pg.client_encoding = "LATIN1" },
      "async_set_client_encoding" => ->(pg) { pg.async_set_client_encoding("LATIN1") },
      "encrypt_password" => ->(pg) { pg.encrypt_password("secret", "fairlead") },
      "large_send_query" => ->(pg) { pg.send_query("SELECT '#{"x" * 60_000_000}'") }, # more than the kernel buffers
      "copy_end" => lambda { |pg|
        pg.exec("COPY interrupted FROM STDIN")
        pg.put_copy_data("1\n" * 5_000_000)
        pg.put_copy_end
      }
    }.each do |name, ask|
      define_method("test_pg_#{name}_interrupted") do
        Sync do
          driver = PostgreSQL.open
          interrupt(0, 1) { ask.call(driver.connection) }

          assert_closed driver
        end
      end
    end

    # As pg does without Fairlead.
    {
      "a_copy_ends" => ["COPY interrupted FROM STDIN", ->(pg) { pg.put_copy_end(:reason) }, ->(pg) { pg.put_copy_end }],
      "an_answer_comes" => ["SELECT 1", ->(pg) { pg.encrypt_password(:secret, "fairlead", "md5") }, ->(_) {}]
    }.each do |name, (statement, wrong, ending)|
      define_method("test_pg_stays_open_when_an_argument_is_wrong_before_#{name}") do
        Sync do
          driver = PostgreSQL.open
          driver.connection.send_query(statement)
          driver.connection.get_result if statement.start_with?("COPY")
          assert_raises(TypeError) { wrong.call(driver.connection) }
          ending.call(driver.connection)
          driver.connection.discard_results

          assert_equal "1", driver.connection.exec("SELECT 1").getvalue(0, 0)
        end
      end
    end

    # Each method that may ask the server, or wait for it, is interruptible. A method that pg gains belongs to one kind or another.
    def test_pg_has_no_method_of_which_nobody_knows_whether_it_waits
      known = /\A(?:sync_.*|lo_?[a-z]+|(?:async_)?(?:cancel|reset|isnonblocking|setnonblocking)|.*escape.*|.*coder_for.*|type_map_for.*)=?\z/
      unknown = PG::Connection.public_instance_methods(false).reject do |name|
        known.match?(name) || REST.include?(name) || PG::Connection.instance_method(name).owner == Drivers::PostgreSQL::Connection
      end

      assert_empty unknown
    end

    # PostgreSQL would roll back at COMMIT, and say nothing.
    def test_pg_nobody_takes_a_transaction_for_committed_whose_statement_was_interrupted
      Sync do
        driver = PostgreSQL.open
        ["BEGIN", INSERT, "SAVEPOINT one"].each { |sql| driver.run(sql) }
        interrupt(LATER, 1) { driver.run("SELECT pg_sleep(20)") }

        assert_raises(PG::ConnectionBad) { driver.run("COMMIT") }
      end
      assert_equal "0", @postgresql.exec("SELECT count(*) FROM interrupted").getvalue(0, 0)
    end

    def test_statements_may_have_bytes_that_are_no_text
      Sync do
        driver = DRIVERS.fetch("mysql2").call

        assert_equal "FF", driver.run("SELECT HEX('\xff') AS bytes").first["bytes"]
        postgresql = DRIVERS.fetch("pg").call

        assert_raises(PG::CharacterNotInRepertoire) { postgresql.connection.prepare("bytes", "SELECT '\xff'") }
      ensure
        driver&.close
        postgresql&.close
      end
    end

    private

    # No answer comes before the statement waits for it.
    def interrupt(pause, times)
      networks = self.class.networks.values.each(&:hold)
      task = Async { yield }
      networks.each(&:go)
      # Other fibers do not go on: the answer comes, and is not taken.
      Fiber.blocking { sleep(pause) }
      times.times { task.cancel }
      task.wait

      assert_predicate task, :cancelled?
    end

    def assert_closed(driver)
      assert_predicate driver, :closed?
      eventually("the server has closed it too", within: 20) { !there?(driver) }
    end

    def there?(driver)
      if driver.is_a?(PostgreSQL) then @postgresql.exec("SELECT FROM pg_stat_activity WHERE pid = #{driver.id}").ntuples.positive?
      else @mariadb.query("SELECT id FROM information_schema.processlist WHERE id = #{driver.id}").count.positive?
      end
    end
  end
end
