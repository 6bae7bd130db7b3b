# frozen_string_literal: true

require_relative "../helper"
require_relative "databases"
require "etc"
require "open3"
require "pg"
require "trilogy"

module Fairlead
  # A database that restarts, refuses connections, or ends them, under an app that is being used.
  class FaultsTest < Test
    # Its own, since they are restarted.
    FOLDER = "/var/tmp/fairlead-services-faults-#{Process.pid}".freeze
    PROGRAM = File.join(ROOT, "bin/services").freeze
    Minitest.after_run do
      system({ "FAIRLEAD_SERVICES" => FOLDER }, PROGRAM, "destroy", out: File::NULL) if File.exist?(FOLDER)
    end
    # Requests at a time, while the database restarts.
    CLIENTS = 12
    # Seconds from the database's return until all is well.
    RETURN = 1.0

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
      skip("No databases: run bin/test") unless Databases.postgresql
      services("start")
    end

    %w[postgresql mysql2 trilogy].each do |adapter|
      service = adapter == "postgresql" ? adapter : "mariadb"

      define_method("test_#{adapter}_restarted_under_load_fails_only_what_ran_then") do
        with_server(APP, env: environment(adapter)) do |server|
          workers = server.worker_pids
          assert_one_below(RETURN) { seconds_after_restart(server, service) }
          assert_equal workers, server.worker_pids
        end
      end

      define_method("test_#{adapter}_connections_that_the_server_has_closed_are_not_handed_out") do
        with_server(APP, env: environment(adapter)) do |server|
          3.times do
            assert_equal ["200"], together(server, 10).map(&:code).uniq
            end_connections(service)

            assert_equal [%w[200 done]], together(server, 10).map { |answer| [answer.code, answer.body] }.uniq
          end
        end
      end
    end

    def test_where_the_server_takes_no_more_connections_requests_wait_and_nobody_spins = waits_for_room

    def test_nor_does_a_budget_change_that = waits_for_room("--database-connections", "10")

    def test_who_waits_in_vain_is_told_of_pool_role_limit_and_remedy
      url = limited(1)
      other = PG.connect(url)
      with_server(APP, env: { "DATABASE_URL" => "#{url}?pool=7&checkout_timeout=0.3" }) do |server|
        answer = server.get("/work")

        assert_equal "500", answer.code
        assert_match(/could not connect to the database \(waited \d+\.\d/, answer.body)
        assert_match(/too many connections for role/, answer.body)
        assert_match(/Pool "primary" \(role writing, shard default\): 0 connections of 7\..* max_connections/, answer.body)
        other.close
        eventually("there is room again") { server.get("/work").code == "200" }
      end
    end

    private

    def waits_for_room(*flags)
      url = limited(3)
      with_server(APP, *flags, env: { "DATABASE_URL" => "#{url}?pool=20&checkout_timeout=10" }) do |server|
        answers = together(server, 60)

        assert_equal [%w[200 done]], answers.map { |answer| [answer.code, answer.body] }.uniq
        others = Array.new(3) { connect_when_there_is_room(url) }
        waiting = Thread.new { together(server, 30) }
        share = least_share_of_cpu(server)
        others.each(&:close)

        assert_equal [%w[200 done]], waiting.value.map { |answer| [answer.code, answer.body] }.uniq
        assert_operator share, :<, 0.4
      end
    end

    # @return [Float] how long requests took once the database was back, at most.
    def seconds_after_restart(server, service)
      stopping = stopped = back = nil
      answers = load(server) do
        sleep(0.5)
        stopping = monotonic
        services("stop", service)
        stopped = monotonic
        sleep(0.5)
        services("start", service)
        back = monotonic
        sleep(1.5)
      end
      failed, served = answers.partition { |answer| answer[:code] != "200" }

      assert_empty failed.select { |answer| answer[:began] > stopped }, "errors after the stop"
      assert_empty failed.select { |answer| answer[:ended] < stopping }, "errors before the stop"
      assert_operator served.count { |answer| answer[:began] > back }, :>, CLIENTS
      served.map { |answer| answer[:ended] - [answer[:began], back].max }.max
    end

    def services(*command)
      output, status = Open3.capture2e({ "FAIRLEAD_SERVICES" => FOLDER }, PROGRAM, *command)

      assert_predicate status, :success?, output
      output.chomp
    end

    def environment(adapter)
      url = adapter == "postgresql" ? services("url") : services("url", "mariadb").sub("mysql2:", "#{adapter}:")
      { "DATABASE_URL" => "#{url}?pool=10&checkout_timeout=10" }
    end

    # Clients that ask again and again while the block runs.
    #
    # @return [Array<Hash>] what became of each request.
    def load(server)
      over = false
      clients = Array.new(CLIENTS) do
        Thread.new do
          answers = []
          until over
            began = monotonic
            response = server.get("/work")
            answers << { began:, ended: monotonic, code: response.code, body: response.body }
          end
          answers
        end
      end
      yield
      over = true
      clients.flat_map(&:value)
    end

    def together(server, count) = Array.new(count) { Thread.new { server.get("/work") } }.map(&:value)

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

    # @return [String] the address of a user who may have so many connections.
    def limited(connections)
      name = "limited_#{connections}"
      PG.connect(services("url")) do |database|
        database.exec("DROP ROLE IF EXISTS #{name}")
        database.exec("CREATE ROLE #{name} LOGIN PASSWORD 'few' CONNECTION LIMIT #{connections}")
      end
      services("url").sub(%r{//[^@]*@}, "//#{name}:few@")
    end

    # The app's are closed one by one.
    def connect_when_there_is_room(url)
      address = URI(services("url"))
      PG.connect(address.to_s) do |database|
        database.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename LIKE 'limited_%' " \
                      "AND application_name <> 'holder'")
      end
      eventually("there is room") do
        PG.connect("#{url}?application_name=holder")
      rescue PG::ConnectionBad
        nil
      end
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
