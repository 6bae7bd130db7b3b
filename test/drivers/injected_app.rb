# frozen_string_literal: true

require "active_record"
require "trilogy"
require "fairlead/serving/scheduler"
require_relative "injection"

module Fairlead
  # What an app does with a database, each as a path: interrupted at every wait. After each attempt the database is asked, and
  # the pool. Answers how many attempts there were, and what was wrong.
  module InjectedApp
    Scheduler.prepend(Injection::Waits)
    ::ActiveRecord::Base.logger = nil
    tls = ENV["TRILOGY_TLS"] ? { ssl: true, ssl_mode: ::Trilogy::SSL_REQUIRED_NOVERIFY } : {}
    ::ActiveRecord::Base.establish_connection(url: ENV.fetch("DATABASE_URL"), **tls)

    # A row of the test's.
    class Row < ::ActiveRecord::Base
      self.table_name = ENV.fetch("USER_UNDER_TEST", "injected")
    end

    # The work; each writes as many rows as it says, or none. Before it, `first` is done without interruption.
    WORK = {
      "connect" => [0, ->(_) { pool.with_connection { |connection| connection.select_value("SELECT 1") } }, -> { pool.disconnect! }],
      "transaction" => [2, ->(token) { Row.transaction { 2.times { Row.create!(token:) } } }],
      "rollback" => [0, lambda { |token|
        Row.transaction { Row.create!(token:) && raise(::ActiveRecord::Rollback) }
      }],
      "savepoint" => [2, lambda { |token|
        Row.transaction do
          Row.create!(token:)
          Row.transaction(requires_new: true) { Row.create!(token:) && raise(::ActiveRecord::Rollback) }
          Row.transaction(requires_new: true) { Row.create!(token:) }
        end
      }],
      "rescued" => [2, lambda { |token|
        Row.transaction do
          Row.create!(token:)
          begin
            Row.connection_pool.active_connection?.select_value(SLEEP)
          rescue ::Timeout::ExitException, RequestTimeout, ClientGone, ::ActiveRecord::StatementInvalid
            nil
          end
          Row.create!(token:)
        end
      }],
      # The connection is lost, and with it a savepoint; the transaction around it begins anew. What is interrupted there does not
      # go on without a transaction.
      "reopened" => [2, lambda { |token|
        Row.transaction do
          lose_savepoint
          begin
            Row.connection_pool.active_connection?.select_value("SELECT 1")
          rescue ::Timeout::ExitException, RequestTimeout, ClientGone, ::ActiveRecord::ActiveRecordError => error
            nil
          end
          Row.create!(token:)
          raise error if error

          Row.create!(token:)
        end
      }],
      # Within a savepoint, and the new connection is lost too while ActiveRecord configures it.
      "reopened twice" => [2, lambda do |token|
        Row.transaction(joinable: false) do
          Row.transaction do
            lose_savepoint
            EndedOnce.due = true
            begin
              Row.create!(token:)
            rescue ::Timeout::ExitException, RequestTimeout, ClientGone, ::ActiveRecord::ActiveRecordError => error
              nil
            end
            Row.create!(token:)
            raise error if error
          end
        end
      ensure
        EndedOnce.due = nil
      end],
      "statement" => [0, ->(_) { pool.with_connection { |connection| connection.select_value(SLEEP) } }],
      "prepared" => [0, ->(token) { pool.with_connection { Row.where(token:).pluck(:id) } }],
      "in line" => [0, lambda { |_|
        pool.with_connection { |connection| connection.select_value("SELECT 1") }
      }, lambda {
        2.times { Async { pool.with_connection { sleep 0.004 } } }
      }],
      "disconnect" => [0, lambda { |_|
        pool.with_connection { |connection| connection.select_value("SELECT 1") }
        pool.disconnect!
      }],
      "reap" => [0, lambda { |_|
        pool.reap
        pool.flush!
      }, -> { Thread.new { pool.checkout.select_value("SELECT 1") }.join }]
    }.freeze

    # As whoever administers the database does.
    def self.lose_savepoint
      Row.transaction(requires_new: true) do
        Watch.end_connection(Row.connection_pool.active_connection?.select_value(POSTGRESQL ? "SELECT pg_backend_pid()" : "SELECT CONNECTION_ID()"))
        raise ::ActiveRecord::Rollback
      end
    rescue ::ActiveRecord::ActiveRecordError
      nil
    end
    private_class_method :lose_savepoint

    # Of an adapter.
    module EndedOnce
      class << self
        attr_accessor :due
      end

      private

      def configure_connection
        if EndedOnce.due
          EndedOnce.due = nil
          Watch.end_connection(id_of(@raw_connection))
        end
        super
      end

      def id_of(raw) = POSTGRESQL ? raw.backend_pid : raw.query("SELECT CONNECTION_ID()").first.then { |row| row.is_a?(Hash) ? row.values.first : row.first }
    end

    # What rescues the interruption, and goes on as if nothing had been.
    RESCUED = ["rescued", "reopened", "reopened twice"].freeze
    ENOUGH = 3

    class << self
      def pool = ::ActiveRecord::Base.connection_pool

      def call(env)
        return answer(setup) if env["PATH_INFO"] == "/setup"
        return answer(rows_where_it_goes_on(env["QUERY_STRING"] == "savepoint")) if env["PATH_INFO"] == "/goes_on"

        name = WORK.keys.find { |one| env["PATH_INFO"] == "/#{one.tr(" ", "_")}" }
        faults = []
        ways = env["QUERY_STRING"].empty? ? Injection::WAYS.size : env["QUERY_STRING"].to_i
        attempts = Injection.each(ways) { |attempt| try(name, attempt) { |fault| faults << fault } if faults.size < ENOUGH }
        answer("#{attempts} attempts\n#{faults.join("\n")}")
      end

      private

      def answer(text) = [200, { "content-type" => "text/plain" }, [text]]

      def setup
        pool.with_connection do |connection|
          connection.class.prepend(EndedOnce) unless connection.class.include?(EndedOnce)
          connection.create_table(Row.table_name, force: true) { |table| table.string(:token) }
        end
        Row.reset_column_information
        Row.new # asks for the columns now, so that later the first statement is the one that is meant
        "ready"
      end

      # The connection is lost within a transaction, and the new one while ActiveRecord configures it: ActiveRecord opens a
      # third one, on which the transaction goes on, and is rolled back.
      #
      # @param savepoint [Boolean] whether all that is done within a savepoint.
      # @return [String] how many rows there are within the transaction, and after it.
      def rows_where_it_goes_on(savepoint)
        rows = nil
        Row.transaction(joinable: !savepoint) do
          Row.transaction do
            lose_savepoint
            EndedOnce.due = true
            Row.create!(token: "twice")
          end
          rows = Row.where(token: "twice").count
          raise ::ActiveRecord::Rollback
        end
        EndedOnce.due.nil? ? "#{rows} #{Row.where(token: "twice").count}" : "it was not opened again"
      end

      def try(name, attempt)
        rows, work, first = WORK.fetch(name)
        token = "#{name} #{@token = (@token || 0) + 1}"
        first&.call
        hold_the_lock if SQLITE
        attempt.run { work.call(token) }
        wrong = Watch.faults(attempt, token, rows)
        wrong << "it is not what was raised" unless RESCUED.include?(name) || attempt.error.nil? || Drivers.interruption?(attempt.error)
        yield "#{wrong.join("; ")}: #{attempt}" if wrong.any?
      end
    end

    # SQLite waits for nothing else.
    def self.hold_the_lock
      @holder&.join
      database = ::SQLite3::Database.new(ENV.fetch("SQLITE"))
      database.execute("BEGIN IMMEDIATE")
      @holder = Thread.new do
        sleep 0.006
        database.execute("ROLLBACK")
        database.close
      end
    end
    private_class_method :hold_the_lock

    POSTGRESQL = ENV.fetch("DATABASE_URL").start_with?("postgres")
    USER = ENV.fetch("USER_UNDER_TEST", "injected")
    SQLITE = ENV.fetch("DATABASE_URL").start_with?("sqlite")
    SLEEP = POSTGRESQL ? "SELECT pg_sleep(0.03)" : SQLITE ? "SELECT 1" : "SELECT SLEEP(0.03)"

    # Asks the database, over a connection that has nothing to do with the pool, and the pool.
    module Watch
      # Seconds until the server has noticed that a connection is closed.
      NOTICED = 10

      class << self
        # @return [Array<String>]
        def faults(attempt, token, rows)
          deadline = now + NOTICED
          wrong = lasting
          wrong = (sleep(0.005) && lasting) until wrong.empty? || now > deadline
          written = count(token)
          allowed = attempt.done? ? [rows] : [0, rows]
          wrong << "#{written} rows, not #{allowed.join(" or ")}" unless allowed.include?(written)
          wrong.concat(next_one)
        end

        def end_connection(number)
          sql = POSTGRESQL ? "SELECT pg_terminate_backend(#{number})" : "KILL #{number}"
          # No wait of the work: an interruption here would leave the pool a connection that it does not yet know to be lost.
          ::Fiber.blocking { outside { POSTGRESQL ? connection.exec(sql) : connection.query(sql) } }
        end

        private

        def connection = @connection ||= POSTGRESQL ? PG.connect(ENV.fetch("OBSERVER_URL")) : ::Trilogy.new(observer)

        # What may be so for a moment.
        def lasting
          busy = InjectedApp.pool.stat.slice(:busy, :waiting, :dead).select { |_, number| number.positive? }
          [("the pool: #{busy}" if busy.any?), *outside { server }].compact
        end

        def next_one
          ::Timeout.timeout(10) { Row.transaction { Row.create!(token: "next") && Row.count } }
          []
        rescue StandardError => error
          ["the next cannot work: #{error.class}: #{error.message}"]
        end

        def server
          return [] if SQLITE

          open = InjectedApp.pool.connections.count(&:connected?)
          POSTGRESQL ? postgresql(open) : mariadb(open)
        end

        def postgresql(open)
          all = connection.exec("SELECT pid, state, left(query, 60) FROM pg_stat_activity WHERE usename = '#{USER}'").values
          locks = connection.exec("SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE usename = '#{USER}' " \
                                   "AND state = 'idle'").getvalue(0, 0)
          [("locks: #{locks}" if locks != "0"), *all.reject { |row| row[1] == "idle" }.map(&:inspect),
           ("#{all.size} connections, #{open} in the pool" if all.size != open)]
        end

        # One more ends queries.
        def mariadb(open)
          all = connection.query("SELECT id, command, LEFT(info, 60) FROM information_schema.processlist WHERE user = '#{USER}'").rows
          [*all.map(&:first).intersection(in_transactions).map { |id| "a transaction: #{id}" }, *all.reject { |row| row[1] == "Sleep" }.map(&:inspect),
           ("#{all.size} connections, #{open} in the pool" unless [open, open + 1].include?(all.size))]
        end

        # information_schema.innodb_trx is not renewed before nobody has read it for 0.1 s: whoever waits by reading it sees the past.
        def in_transactions
          status = connection.query("SHOW ENGINE INNODB STATUS").rows.first.last
          status.split("---TRANSACTION ").filter_map { |one| one[/\A\S+, ACTIVE.*?thread id (\d+)/m, 1]&.to_i }
        end

        def observer
          address = URI(ENV.fetch("OBSERVER_URL"))
          { host: address.host, port: address.port, username: address.user, password: address.password, database: "fairlead" }
        end

        def count(token)
          return outside { ::SQLite3::Database.new(ENV.fetch("SQLITE")).then { |db| db.get_first_value(COUNT, token).tap { db.close } } } if SQLITE

          outside do
            POSTGRESQL ? connection.exec_params("#{COUNT[0..-2]}$1", [token]).getvalue(0, 0).to_i : connection.query("#{COUNT[0..-2]}'#{token}'").first.first
          end
        end

        def outside(&) = Thread.new(&).value
        def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end

      COUNT = "SELECT count(*) FROM #{Row.table_name} WHERE token = ?"
    end
  end
end
