# frozen_string_literal: true

require "socket"
require_relative "drivers/databases"
require_relative "server_process"

module Fairlead
  # Money is moved between accounts while requests are interrupted in each way, clients leave, workers are killed, and the
  # database is restarted: at random, under load. Each answer of 200 has both its rows, each other one both or none; the sum is
  # what it was; and no request finds itself within a transaction.
  class Ledger
    ACCOUNTS, BALANCE = 20, 1000
    WAYS = %w[plain plain timeout nested cancelled rescued savepoint].freeze
    # Seconds that a request may take, from one death of a worker to the next, and from one restart to the next.
    LIMIT, DEATHS, RESTARTS = 0.25, 4, 45
    # Seconds more at most, until enough was moved.
    GRACE = 120
    CONFIG = "require #{File.expand_path("ledger/app", __dir__).inspect}\nrun ->(env) { Fairlead::Ledger::App.new.call(env) }\n".freeze
    private_constant :ACCOUNTS, :BALANCE, :WAYS, :LIMIT, :DEATHS, :RESTARTS, :GRACE, :CONFIG

    # @return [Array<String>] what was not as it should be; known after {#run}.
    attr_reader :faults
    # @return [Hash{String => Integer}] how many answers there were of each kind.
    attr_reader :counts

    # @param url [String] as in DATABASE_URL
    # @param enough [Integer] answers of 200 until which a client goes on, on a slow machine beyond its time.
    # @param restart [#call, nil] restarts the database, where nobody else uses it.
    def initialize(url:, seconds:, seed: 1, clients: 12, enough: 0, restart: nil)
      @url, @seconds, @seed, @clients, @enough, @restart = url, seconds, seed, clients, enough, restart
      @answers = {}
      @faults = []
      @database = Database.of(url)
    end

    # @return [self]
    def run
      @database.prepare(ACCOUNTS, BALANCE)
      server = ServerProcess.new(CONFIG, "-w", "2", "--request-timeout", LIMIT.to_s, "--cancel-abandoned", lint: false,
                                 env: { "DATABASE_URL" => "#{@url}?pool=8&checkout_timeout=2" }).start.wait_until_ready
      stop = now + @seconds
      threads = Array.new(@clients) { |number| Thread.new { client(server, Random.new((@seed * 1000) + number), number, stop) } }
      threads << Thread.new { every(DEATHS, stop) { kill(server) } }
      threads << Thread.new { every(RESTARTS, stop) { @restart.call } } if @restart
      threads.each(&:value)
      server.stop
      judge
      self
    ensure
      server&.finish
    end

    def to_s = "seed #{@seed}: #{counts}"

    private

    def every(seconds, stop)
      while now + seconds < stop
        sleep(seconds)
        yield
      end
    end

    def kill(server)
      Process.kill(:KILL, server.worker_pids.sample)
    rescue SystemCallError, TypeError
      nil # it has just ended
    end

    def client(server, dice, number, stop)
      count = 0
      # All together may keep a slow machine so busy that no request gets done within its limit.
      while now < stop || (number.zero? && now < stop + GRACE && @answers.values.count("200") < @enough)
        token = "#{number}-#{count += 1}"
        from, to = (1..ACCOUNTS).to_a.sample(2, random: dice)
        patience = dice.rand < 0.15 ? dice.rand * 0.08 : 10
        seconds = dice.rand < 0.3 ? dice.rand * 0.5 : dice.rand * 0.04
        path = "/move?token=#{token}&from=#{from}&to=#{to}&amount=#{dice.rand(1..50)}&way=#{WAYS.sample(random: dice)}&seconds=#{seconds.round(4)}"
        @answers[token] = ask(server, path, patience)
      end
    end

    # @return [String] the status, or what came of it.
    def ask(server, path, patience)
      server.connect do |socket|
        socket.write("GET #{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        return "left" unless socket.wait_readable(patience)

        socket.read[%r{\AHTTP/1\.1 (\d+)}, 1] || "nothing"
      end
    rescue SystemCallError
      "lost"
    end

    def judge
      @counts = @answers.values.tally
      rows = @database.rows
      @answers.each do |token, answer|
        written = rows.fetch(token, 0)
        @faults << "#{token}: #{answer}, but #{written} rows" unless written == 2 || (written.zero? && answer != "200")
        @faults << "#{token} found itself within a transaction" if answer == "599"
      end
      @faults.concat(@database.faults(ACCOUNTS, BALANCE))
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # What is asked afterwards, over a connection of its own.
    class Database
      TABLES = [
        "DROP TABLE IF EXISTS ledger_accounts", "DROP TABLE IF EXISTS ledger_entries",
        "CREATE TABLE ledger_accounts (id integer PRIMARY KEY, balance integer NOT NULL)",
        "CREATE TABLE ledger_entries (id %s PRIMARY KEY, token varchar(20), account integer, amount integer)"
      ].freeze
      private_constant :TABLES

      # @param url [String]
      def self.of(url) = new(url)

      def initialize(url)
        @postgresql = url.start_with?("postgres")
        @url = url
      end

      def prepare(accounts, balance)
        TABLES.each { |sql| ask(format(sql, @postgresql ? "serial" : "integer AUTO_INCREMENT")) }
        (1..accounts).each { |id| ask("INSERT INTO ledger_accounts VALUES (#{id}, #{balance})") }
      end

      # @return [Hash{String => Integer}]
      def rows = ask("SELECT token, count(*) FROM ledger_entries GROUP BY token").to_h { |token, count| [token, count.to_i] }

      # @return [Array<String>]
      def faults(accounts, balance)
        sum = accounts * balance
        total = ask("SELECT sum(balance) FROM ledger_accounts")[0][0].to_i
        wrong = ask("SELECT a.id FROM ledger_accounts a WHERE a.balance <> #{balance} + " \
                    "(SELECT coalesce(sum(e.amount), 0) FROM ledger_entries e WHERE e.account = a.id)")
        [("the sum is #{total}, not #{sum}" if total != sum), ("accounts that differ from their entries: #{wrong}" if wrong.any?)].compact
      end

      private

      def ask(sql)
        if @postgresql
          require "pg"
          (@connection ||= PG.connect(@url)).exec(sql).values
        else
          require "trilogy"
          @connection ||= URI(@url).then do |at|
            ::Trilogy.new(host: at.host, port: at.port, username: at.user, password: at.password, database: at.path.delete_prefix("/"))
          end
          @connection.query(sql).rows.to_a
        end
      rescue StandardError
        raise unless @connection && (@tries = (@tries || 0) + 1) < 4

        @connection = nil # the database was restarted
        retry
      end
    end
    private_constant :Database
  end
end
