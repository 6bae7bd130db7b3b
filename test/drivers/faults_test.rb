# frozen_string_literal: true

require_relative "../helper"
require_relative "../own_services"
require_relative "databases"
require "etc"
require "open3"
require "pg"
require "trilogy"

module Fairlead
  # A database that restarts, refuses connections, or ends them, under an app that is being used.
  # Covers active_record/adapter_patch.rb
  class FaultsTest < Test
    needs :database

    # Its own, since they are restarted.
    FOLDER = OwnServices.folder("faults")
    # Requests at a time, while the database restarts.
    CLIENTS = 12
    # Seconds from the database's return until all is well.
    RETURN = 10.0

    APP = <<~RUBY
      require "active_record"
      ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL"))
      WORK = { "PostgreSQL" => "SELECT pg_sleep(0.02)", "Mysql2" => "SELECT SLEEP(0.02)", "Trilogy" => "SELECT SLEEP(0.02)" }

      run(lambda do |env|
        text = ActiveRecord::Base.with_connection do |connection|
          case env["PATH_INFO"]
          when "/work" then connection.execute(WORK.fetch(connection.adapter_name)) && "done"
          when "/pools" then ActiveRecord::Base.connection_pool.stat.inspect
          end
        end
        [200, { "content-type" => "text/plain" }, [text]]
      rescue ActiveRecord::ActiveRecordError => error
        [500, { "content-type" => "text/plain" }, [error.message]]
      end)
    RUBY

    def setup
      super
      services("start")
    end

    %w[postgresql mysql2 trilogy].each do |adapter|
      service = adapter == "postgresql" ? adapter : "mariadb"

      define_method("test_#{adapter}_restarted_under_load_fails_only_what_ran_then") do
        with_server(APP, env: environment(adapter)) do |server|
          workers = server.worker_pids
          assert_operator seconds_after_restart(server, service), :<, RETURN
          assert_equal workers, server.worker_pids
        end
      end

      define_method("test_#{adapter}_connections_that_the_server_has_closed_are_not_handed_out") do
        with_server(APP, env: environment(adapter)) do |server|
          3.times do
            assert_each_equal %w[200 done], together(server, 10), server
            end_connections(service)

            assert_each_equal %w[200 done], together(server, 10), server
          end
        end
      end
    end

    %w[postgresql mysql2 trilogy].each do |adapter|
      define_method("test_where_the_server_takes_no_more_connections_of_#{adapter}_requests_wait_and_nobody_spins") do
        waits_for_room(adapter)
      end
    end

    { "postgresql" => ["--database-connections", "7"], "mysql2" => [], "trilogy" => [] }.each do |adapter, flags|
      define_method("test_who_waits_in_vain_for_#{adapter}_is_told_of_pool_role_limit_and_remedy") do
        few = few(adapter, 1)
        others = few.take_all
        limit = flags.any? ? "7 \\(of all workers together\\)" : "7"
        with_server(APP, *flags, env: { "DATABASE_URL" => "#{few.url}?pool=7&checkout_timeout=0.3" }) do |server|
          answer = server.get("/work")

          assert_equal "500", answer.code
          assert_match(/could not connect to the database \(waited \d+\.\d/, answer.body)
          assert_match(/too many connections/i, answer.body)
          assert_match(/Pool "primary" \(role writing, shard default\): 0 connections of #{limit}\..* max_connections/, answer.body)
          others.each(&:close)
          eventually("there is room again") { server.get("/work").code == "200" }
        end
      ensure
        few&.close
      end
    end

    def test_nor_does_a_budget_change_that = waits_for_room("postgresql", "--database-connections", "10")

    private

    def waits_for_room(adapter, *flags)
      few = few(adapter, 3)
      with_server(APP, *flags, env: { "DATABASE_URL" => "#{few.url}?pool=20&checkout_timeout=60" }) do |server|
        assert_each_equal %w[200 done], together(server, 60), server
        others = few.take_all
        waiting = Thread.new { together(server, 30) }
        share = least_share_of_cpu(server)
        others.each(&:close)

        assert_each_equal %w[200 done], waiting.value, server
        assert_operator share, :<, 0.4
      end
    ensure
      few&.close
    end

    # A user of a database server that takes few connections of it.
    def few(adapter, connections)
      return FewOfPostgreSQL.new(services("url"), connections) if adapter == "postgresql"

      FewOfMariaDB.new(services("url", "mariadb").sub("mysql2:", "#{adapter}:"), mariadb)
    end

    # The server bounds what its role may open.
    class FewOfPostgreSQL
      attr_reader :url

      def initialize(url, connections)
        @connections = connections
        @administrator = PG.connect(url)
        @administrator.exec("DROP ROLE IF EXISTS few")
        @administrator.exec("CREATE ROLE few LOGIN PASSWORD 'few' CONNECTION LIMIT #{connections}")
        @url = url.sub(%r{//[^@]*@}, "//few:few@")
      end

      # Ends the app's connections, and opens as many as may be.
      def take_all
        @administrator.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'few'")
        Array.new(@connections) { connect }
      end

      def close = @administrator.close

      private

      # Those that were ended are closed one by one.
      def connect
        PG.connect(@url)
      rescue PG::ConnectionBad
        sleep(0.01)
        retry
      end
    end

    # The server bounds them all, and ten is the least that it can be set to.
    class FewOfMariaDB
      attr_reader :url

      def initialize(url, settings)
        @settings = settings
        @administrator = Trilogy.new(settings)
        @before = @administrator.query("SELECT @@max_connections").rows.first.first
        @administrator.query("CREATE OR REPLACE USER few IDENTIFIED BY 'few'")
        @administrator.query("GRANT ALL ON fairlead.* TO few")
        @administrator.query("SET GLOBAL max_connections = 10")
        @url = url.sub(%r{//[^@]*@}, "//few:few@")
      end

      def take_all
        @administrator.query("KILL USER few")
        ended = "SELECT count(*) = 0 FROM information_schema.processlist WHERE user = 'few'"
        sleep(0.01) until @administrator.query(ended).rows.first.first == 1
        taken = []
        loop { taken << Trilogy.new(@settings.merge(username: "few", password: "few")) }
      rescue Trilogy::Error => error
        error.message.match?(/too many connections/i) ? taken : raise
      end

      def close
        @administrator.query("SET GLOBAL max_connections = #{@before}")
        @administrator.close
      end
    end
    private_constant :FewOfPostgreSQL, :FewOfMariaDB

    # @return [Float] how long requests took once the database was back, at most.
    def seconds_after_restart(server, service)
      stopping = stopped = back = nil
      answers = load(server) do |served|
        eventually("they ask") { served.size > 2 * CLIENTS }
        stopping = monotonic
        services("stop", service)
        stopped = monotonic
        sleep(0.5)
        services("start", service)
        back = monotonic
        served.clear # whoever waited counts, too, and each client has one such request at most
        eventually("they are served again") { served.size > 4 * CLIENTS }
      end
      failed, served = answers.partition { |answer| answer[:code] != "200" }

      assert_empty failed.select { |answer| answer[:began] > stopped }, "errors after the stop"
      assert_empty failed.select { |answer| answer[:ended] < stopping }, "errors before the stop"
      assert_operator served.count { |answer| answer[:began] > back }, :>, CLIENTS
      served.map { |answer| answer[:ended] - [answer[:began], back].max }.max
    end

    def services(*command)
      output, status = Open3.capture2e({ "FAIRLEAD_SERVICES" => FOLDER }, OwnServices::PROGRAM, *command)

      assert_predicate status, :success?, output
      output.chomp
    end

    def environment(adapter)
      url = adapter == "postgresql" ? services("url") : services("url", "mariadb").sub("mysql2:", "#{adapter}:")
      { "DATABASE_URL" => "#{url}?pool=10&checkout_timeout=60" }
    end

    # Clients that ask again and again while the block runs.
    #
    # @yieldparam [Thread::Queue] gets an entry for each request that was served.
    # @return [Array<Hash>] what became of each request.
    def load(server)
      over = false
      served = Thread::Queue.new
      clients = Array.new(CLIENTS) do
        Thread.new do
          answers = []
          until over
            began = monotonic
            response = server.get("/work")
            answers << { began:, ended: monotonic, code: response.code, body: response.body }
            served << true if response.code == "200"
          end
          answers
        end
      end
      yield served
      clients.tap { over = true }.flat_map(&:value)
    ensure
      over = true
    end

    # @return [Array<Array(String, String)>] status and body of each.
    def together(server, count) = Array.new(count) { Thread.new { server.get("/work").then { |answer| [answer.code, answer.body] } } }.map(&:value)

    # As an administrator does, or a server that finds them idle for too long.
    def end_connections(service)
      if service == "postgresql"
        database = PG.connect(services("url"))
        database.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' " \
                      "AND pid <> pg_backend_pid()")
        eventually("they are gone") { database.exec("SELECT FROM pg_stat_activity WHERE backend_type = 'client backend'").ntuples == 1 }
      else
        database = Trilogy.new(mariadb)
        others = "SELECT id FROM information_schema.processlist WHERE user = 'fairlead' AND id <> CONNECTION_ID()"
        database.query(others).each { |(id)| database.query("KILL #{id}") }
        eventually("they are gone") { database.query(others).to_a.empty? }
      end
      database.close
    end

    def mariadb
      address = URI(services("url", "mariadb"))
      { host: address.host, port: address.port, username: address.user, password: address.password }
    end

    # Once the requests have come, which costs something: one that spins does so all the time.
    #
    # @return [Float] 1.0 is a whole core.
    def least_share_of_cpu(server)
      Array.new(4) do
        before, since = cpu(server), monotonic
        sleep(0.5)
        (cpu(server) - before) / (monotonic - since)
      end.min
    end

    def cpu(server)
      server.worker_pids.sum do |pid|
        File.read("/proc/#{pid}/stat").split(") ").last.split.values_at(11, 12).sum(&:to_i)
      end.fdiv(Etc.sysconf(Etc::SC_CLK_TCK))
    end
  end
end
