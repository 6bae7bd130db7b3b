# frozen_string_literal: true

require "uri"
require_relative "scram"

module Fairlead
  # What an app does with a database driver, each as a path: /Pg/query, /Mysql2/connect, … The app that serves them
  # answers how many seconds the operation took, how late the fiber was at most that meanwhile wakes every 5 ms, without the time
  # that others took (Ruby's garbage collector, processes that had the processor), and how late in all.
  module Operations
    TICK = 0.005
    # Seconds that an operation takes, about.
    LONG = 0.2
    # A result of so many is made again and again: who goes through one without a pause lets others be late, also without
    # the garbage collector.
    ROWS = 200_000

    # What a driver still does while nobody else goes on: the guide on databases says so.
    HOLDS_UP = { "Mysql2" => %i[slowly_coming_prepared_result slowly_streamed server_option several_results abandoned_results] }.freeze

    class << self
      def call(env)
        _, driver, operation = env["PATH_INFO"].split("/")
        [200, { "content-type" => "text/plain" }, [const_get(driver).new.run(operation).join(" ")]]
      end
    end

    # What the drivers have in common.
    class Driver
      def run(operation)
        public_send(operation)
        [@took, @late, @held]
      ensure
        @connection&.close
      end

      private

      def measure
        @late = @held = 0.0
        started = now
        @woke = started
        ticker = Async { loop { tick } }
        sleep(TICK * 2)
        result = yield
        sleep(TICK * 2)
        @took = now - started
        result
      ensure
        ticker.stop
      end

      def tick
        starved = starvation
        collected = GC.total_time
        due = now + TICK
        sleep(TICK)
        late = now - due - starvation.sum { |thread, seconds| seconds - starved.fetch(thread, 0) } - ((GC.total_time - collected) / 1e9)
        @late = [@late, late].max
        # With the reading of those files, during which another thread may begin to hold Ruby's lock.
        before, @woke = @woke, now
        @held = [@held, @woke - before - TICK].max
      end

      def repeatedly
        measure do
          deadline = now + LONG
          yield until now > deadline
        end
      end

      # What would take longer is interrupted.
      def in_vain(&)
        measure do
          Async::Task.current.with_timeout(LONG, &)
          raise "it was not in vain"
        rescue Async::TimeoutError
          nil
        end
      end

      # The fiber of the block is cancelled once the server is at it, which closes the connection.
      def interrupt_repeatedly(address, &)
        repeatedly do
          open(address)
          task = Async(&)
          sleep(0.1)
          task.cancel
          task.wait
          @connection = nil
        end
      end

      # Through the networks that the test has set up.
      def far(name = "FAR") = URI(ENV.fetch("#{self.class::NAME}_#{name}"))

      def near = URI(ENV.fetch("#{self.class::NAME}_NEAR"))

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # For how many seconds each thread of this process has waited for a processor, maybe with Ruby's lock held: that is
      # no driver's doing. https://docs.kernel.org/scheduler/sched-stats.html
      def starvation
        Dir["/proc/self/task/*/schedstat"].each_with_object({}) do |file, seconds|
          seconds[file] = File.read(file).split[1].to_i / 1e9
        rescue SystemCallError
          next # it has ended
        end
      end
    end

    # PostgreSQL.
    class Pg < Driver
      NAME = "POSTGRESQL"
      SLEEP = "SELECT pg_sleep(#{LONG})".freeze
      LARGE = "SELECT i, i * 2, 'text ' || i, now() FROM generate_series(1, #{ROWS}) i".freeze
      KEY_ROUNDS = 50_000 # some 0.1 s; without being told PostgreSQL takes 4,096
      ENDLESS = "SELECT generate_series(1, 1000000000), repeat('x', 100)"

      def connect = measure { open(far("HESITANT")) }
      def connect_where_nobody_answers = in_vain { open(far("SILENT"), connect_timeout: 2) }

      # The server asks for a key that takes milliseconds to compute: as it always does, but here for more of them.
      def connect_with_a_long_key
        address = long_key_address
        repeatedly { PG.connect(address).finish }
      end

      # Then that is computed where it is.
      def connect_while_no_thread_is_free
        free, waited = false, nil
        Offload.threads.times { Async { Fairlead.offload { sleep(LONG * 5) }.then { free = true } } }
        repeatedly do
          PG.connect(near.to_s).finish
          waited = free if waited.nil?
        end
        raise "it waited for a thread" if waited
      end

      def query = (open && measure { @connection.exec(SLEEP) })
      def parameters = (open && measure { @connection.exec_params("SELECT pg_sleep($1)", [LONG]) })
      def single_rows = (open && measure { single(SLEEP) })
      def block_for_result = (open && measure { send_and_block(SLEEP) })
      def tls_handshake = measure { open(far("TLS"), sslmode: "require") }
      def query_over_tls = (open(far("TLS"), sslmode: "require") && measure { @connection.exec(SLEEP) })
      def ping = repeatedly { PG::Connection.ping(far.to_s) }
      def reconnect = (open(far("HESITANT")) && measure { @connection.reset })
      def listen_for_nothing = (open && measure { @connection.exec("LISTEN nothing") && @connection.wait_for_notify(LONG) })
      def slowly_coming_result = (open(far("SLOW")) && measure { @connection.exec("SELECT repeat('x', 20000)") })
      def encrypt_password = (open(far) && repeatedly { @connection.encrypt_password("secret", "fairlead") })
      def slow_single_rows = (open(far("SLOW")) && measure { single("SELECT repeat('x', 4000) FROM generate_series(1, 5)") })

      def prepared_statement
        open
        measure do
          @connection.prepare("sleep", "SELECT pg_sleep($1)")
          @connection.describe_prepared("sleep")
          @connection.exec_prepared("sleep", [LONG])
        end
      end

      def prepare_far_away = (open(far) && repeatedly { @connection.prepare("", "SELECT 1") })

      def large_result = (open && repeatedly { @connection.exec(LARGE).values.size })

      def large_result_cast
        open
        @connection.type_map_for_results = PG::BasicTypeMapForResults.new(@connection)
        repeatedly { @connection.exec(LARGE).values.size }
      end

      def large_result_by_rows = (open && repeatedly { @connection.exec(LARGE).each { |row| row } })

      def large_result_as_hashes = (open && repeatedly { @connection.exec(LARGE).to_a.size })

      def transaction
        open
        measure { @connection.transaction { |inside| inside.exec(SLEEP) } }
      end

      def failing_transaction
        open
        measure do
          @connection.transaction do |inside|
            inside.exec(SLEEP)
            raise "on purpose"
          end
        rescue RuntimeError
          nil
        end
      end

      def copy_out
        open
        measure do
          @connection.copy_data("COPY (SELECT pg_sleep(#{LONG / 10}), 'x' FROM generate_series(1, 10)) TO STDOUT") do
            nil while @connection.get_copy_data
          end
        end
      end

      def copy_out_much
        open
        repeatedly { @connection.copy_data("COPY (#{LARGE}) TO STDOUT") { nil while @connection.get_copy_data } }
      end

      # As fast as the database takes it.
      def copy_in
        open
        @connection.exec("CREATE TEMPORARY TABLE copied (number integer, text text)")
        repeatedly do
          @connection.copy_data("COPY copied FROM STDIN") do
            ROWS.times { |i| @connection.put_copy_data("#{i}\ttext #{i}\n") }
          end
        end
      end

      def large_copy_in
        open(far("NARROW"))
        @connection.exec("CREATE TEMPORARY TABLE copied (number integer, text text)")
        rows = "1\t#{"x" * 997}\n" * 4000
        measure { @connection.copy_data("COPY copied FROM STDIN") { @connection.put_copy_data(rows) } }
      end

      def listen
        open
        @connection.exec("LISTEN news")
        Async do
          sleep(LONG * 1.5)
          PG.connect(near.to_s) { |other| other.exec("NOTIFY news") }
        end
        measure { @connection.wait_for_notify(5) or raise("no news") }
      end

      def cancel
        open(far)
        query = Async { @connection.exec("SELECT pg_sleep(10)") rescue PG::QueryCanceled }
        sleep(0.05)
        repeatedly { @connection.cancel }
        query.wait
      end

      def interrupted_query = interrupt_repeatedly(far) { @connection.exec("SELECT pg_sleep(10)") }
      def interrupted_large_result = interrupt_repeatedly(near) { @connection.exec(ENDLESS) }

      private

      def open(address = near, **options)
        query = URI.encode_www_form(options)
        @connection = PG.connect([address, query].reject { |part| part.to_s.empty? }.join("?"))
      end

      # https://www.postgresql.org/docs/current/catalog-pg-authid.html
      def long_key_address
        secret = Scram.secret("long", salt: "of the tests", rounds: KEY_ROUNDS)
        open.exec("DROP ROLE IF EXISTS long_key; CREATE ROLE long_key LOGIN PASSWORD '#{secret}'")
        URI(near).tap { |address| address.user, address.password = "long_key", "long" }.to_s
      end

      def single(sql)
        @connection.send_query(sql)
        @connection.set_single_row_mode
        @connection.get_result.stream_each { |row| row }
      end

      def send_and_block(sql)
        @connection.send_query(sql)
        @connection.block
        @connection.get_last_result
      end
    end

    # MariaDB, for either driver.
    class MariaDB < Driver
      NAME = "MARIADB"
      SLEEP = "SELECT SLEEP(#{LONG})".freeze
      LARGE = "SELECT seq, seq * 2, CONCAT('text ', seq), NOW() FROM seq_1_to_#{ROWS}".freeze
      ENDLESS = "SELECT seq, REPEAT('x', 100) FROM seq_1_to_1000000000"

      def connect = measure { open(far("HESITANT")) }
      def connect_where_nobody_answers = in_vain { open(far("SILENT"), connect_timeout: 1) }
      def query = (open && measure { @connection.query(SLEEP) })
      def slowly_coming_result = (open(far("SLOW")) && measure { @connection.query("SELECT REPEAT('x', 20000)").to_a })
      def tls_handshake = measure { open(far("HESITANT"), **tls) }
      def query_over_tls = (open(**tls) && measure { @connection.query(SLEEP) })
      def large_result_over_tls = (open(**tls) && repeatedly { @connection.query(LARGE).to_a.size })
      def slowly_coming_result_over_tls = (open(far("SLOW"), **tls) && measure { @connection.query("SELECT REPEAT('x', 20000)").to_a })
      def large_result = (open && repeatedly { @connection.query(LARGE).to_a.size })
      def large_statement = (open(far("NARROW")) && measure { @connection.query("SELECT LENGTH('#{"x" * 4_000_000}')").to_a })
      def ping = (open(far) && repeatedly { @connection.ping })
      def close = repeatedly { connection(far).close }
      def select_database = (open(far) && repeatedly { @connection.select_db("fairlead") })

      def transaction
        open
        measure do
          @connection.query("BEGIN")
          @connection.query(SLEEP)
          @connection.query("COMMIT")
        end
      end

      def several_results
        open(**several)
        measure do
          @connection.query("SELECT 1; SELECT SLEEP(#{LONG * 0.2}); SELECT SLEEP(#{LONG * 0.8})")
          results { |result| result }
        end
      end

      def abandoned_results
        open(**several)
        measure do
          @connection.query("SELECT 1; SELECT SLEEP(#{LONG * 0.2}); SELECT SLEEP(#{LONG * 0.8})")
          abandon
        end
      end

      def cancel
        open
        id = @connection.query("SELECT CONNECTION_ID() AS id").to_a.flatten.first.then { |id| id.is_a?(Hash) ? id["id"] : id }
        query = Async { @connection.query("SELECT SLEEP(10)") rescue nil }
        other = connection(far)
        repeatedly { other.query("KILL QUERY #{id}") }
        query.wait
      end

      def interrupted_query = interrupt_repeatedly(far) { @connection.query("SELECT SLEEP(10)") }
      def interrupted_large_result = interrupt_repeatedly(near) { @connection.query(ENDLESS) }

      private

      def open(address = near, **options) = @connection = connection(address, **options)

      def settings(address)
        { host: address.host, port: address.port, username: address.user, password: address.password,
          database: address.path.delete_prefix("/") }
      end
    end

    # The driver that Rails has chosen for new apps.
    class Trilogy < MariaDB
      def change_db = (open(far) && repeatedly { @connection.change_db("fairlead") })
      def server_option = (open(far) && repeatedly { @connection.set_server_option(::Trilogy::SET_SERVER_MULTI_STATEMENTS_ON) })

      def reconnect
        open(far)
        @connection.close
        measure { open(far("HESITANT")) }
      end

      private

      def connection(address, **options) = ::Trilogy.new(settings(address).merge(options))
      def several = { multi_statement: true }
      def tls = { ssl: true, ssl_mode: ::Trilogy::SSL_REQUIRED_NOVERIFY }
      def results = (yield @connection.next_result while @connection.more_results_exist?)
      def abandon = @connection.abandon_results!
    end

    # The older driver.
    class Mysql2 < MariaDB
      # Of which the driver takes the prepared statement's result in one go, and lets nobody else go on.
      LESS = LARGE.sub(/\d+\z/, "20000").freeze

      def large_result_by_rows = (open && repeatedly { @connection.query(LARGE).each { |row| row } })
      def large_result_streamed = (open && repeatedly { @connection.query(LARGE, stream: true, cache_rows: false).each { |row| row } })
      def asynchronous = (open && measure { @connection.query(SLEEP, async: true) || @connection.async_result })

      def slowly_streamed
        open(far("SLOW"))
        measure { @connection.query("SELECT REPEAT('x', 20000)", stream: true, cache_rows: false).each { |row| row } }
      end

      def reconnect
        open(far("HESITANT"), reconnect: true)
        id = @connection.thread_id
        other = connection(near)
        other.query("KILL #{id}")
        measure { @connection.ping or raise("not connected") }
        raise "the same" if @connection.thread_id == id
      end

      def prepared_statement
        open
        measure { @connection.prepare("SELECT SLEEP(?)").execute(LONG).to_a }
      end

      def prepare_far_away = (open(far) && repeatedly { @connection.prepare("SELECT ?") })

      def large_prepared_result
        open
        repeatedly { @connection.prepare(LESS).execute.to_a.size }
      end

      def slowly_coming_prepared_result
        open(far("SLOW"))
        measure { @connection.prepare("SELECT REPEAT('x', 4000) FROM seq_1_to_5").execute.to_a }
      end

      def server_option = (open(far) && repeatedly { @connection.set_server_option(::Mysql2::Client::OPTION_MULTI_STATEMENTS_ON) })

      def close_statement = (open(far) && repeatedly { @connection.prepare("SELECT 1").close })

      private

      def connection(address, **options) = ::Mysql2::Client.new(settings(address).merge(options))
      def several = { flags: %w[MULTI_STATEMENTS] }
      def tls = { ssl_mode: :required }

      def results
        while @connection.next_result
          yield @connection.store_result
        end
      end

      def abandon = @connection.abandon_results!
    end

    # SQLite, set as Rails does it.
    class Sqlite < Driver
      def lock
        other = SQLite3::Database.new("lock.sqlite3")
        other.execute("BEGIN EXCLUSIVE")
        Async do
          sleep(LONG * 1.5)
          other.execute("COMMIT")
        end
        @connection = SQLite3::Database.new("lock.sqlite3")
        @connection.busy_handler_timeout = 5000
        measure { @connection.execute("CREATE TABLE IF NOT EXISTS things (id integer)") }
      ensure
        other.close
      end
    end

    # The same through ActiveRecord, as an app's `database.yml` would have it.
    class Records < Driver
      def first_query = through_active_record(far("HESITANT")) { |connection| measure { connection.select_value("SELECT 1") } }

      def query = through_active_record { |connection| measure { connection.select_value(self.class::SLEEP) } }

      def prepared_statement
        through_active_record(prepared_statements: self.class::PREPARES) do |connection|
          connection.select_value("SELECT 1")
          measure { connection.select_value(self.class::SLEEP_FOR, "sleep", [LONG]) }
        end
      end

      def transaction
        through_active_record do |connection|
          measure { connection.transaction { connection.execute(self.class::SLEEP) } }
        end
      end

      def large_result
        through_active_record do |connection|
          connection.select_value("SELECT 1")
          repeatedly { connection.select_rows(self.class::LARGE).size }
        end
      end

      def verify = through_active_record(far) { |connection| connection.select_value("SELECT 1") && repeatedly { connection.verify! } }

      def reconnect
        through_active_record(far("HESITANT")) do |connection|
          connection.select_value("SELECT 1")
          measure { connection.reconnect! }
        end
      end

      private

      def through_active_record(url = near, **options, &)
        record = Class.new(::ActiveRecord::Base) { self.abstract_class = true }
        record.define_singleton_method(:name) { "Operation" }
        url = url.to_s.sub(/\A[a-z0-9]+/, self.class::ADAPTER)
        record.establish_connection(url:, **options)
        record.with_connection(&)
      ensure
        record.remove_connection
      end
    end

    # PostgreSQL's adapter.
    class RecordsPg < Records
      NAME, SLEEP, LARGE, ADAPTER = Pg::NAME, Pg::SLEEP, Pg::LARGE, "postgresql"
      SLEEP_FOR = "SELECT pg_sleep($1)"
      PREPARES = true
    end

    # Mysql2's adapter.
    class RecordsMysql2 < Records
      NAME, SLEEP, LARGE, ADAPTER = MariaDB::NAME, MariaDB::SLEEP, MariaDB::LARGE, "mysql2"
      SLEEP_FOR = "SELECT SLEEP(?)"
      PREPARES = true
    end

    # Trilogy's adapter, which prepares nothing.
    class RecordsTrilogy < Records
      NAME, SLEEP, LARGE, ADAPTER = MariaDB::NAME, MariaDB::SLEEP, MariaDB::LARGE, "trilogy"
      SLEEP_FOR = SLEEP
      PREPARES = false

      undef_method :prepared_statement
    end
  end
end
