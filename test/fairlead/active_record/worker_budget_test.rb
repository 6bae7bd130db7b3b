# frozen_string_literal: true

require "etc"
require "pg"
require "rbconfig"
require "trilogy"
require_relative "../../burst"
require_relative "../../drivers/databases"
require_relative "../../helper"
require_relative "../../keep_alive_client"
require_relative "../../restarts"

module Fairlead
  # `database_connections`: one bound on the connections of all workers together.
  class BudgetTest < Test
    include Burst
    include Databases
    needs :database

    WORKERS = 4
    BUDGET = 20
    BURST = 400
    # Seconds that each request holds a connection.
    HOLD = 0.1
    # Of what the longest wait could be at best: opening a connection takes a busy database long.
    BOUND = 10

    APP = <<~RUBY
      require "active_record"
      ActiveRecord::Base.establish_connection("\#{ENV.fetch("DATABASE_URL")}&checkout_timeout=\#{ENV.fetch("CHECKOUT", 20)}")

      run(lambda do |env|
        seconds = env["QUERY_STRING"].to_f
        ActiveRecord::Base.with_connection { |connection| connection.execute("SELECT pg_sleep(\#{seconds})") }
        [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
      end)
    RUBY

    TEN_QUERIES = <<~RUBY
      require "active_record"
      ActiveRecord::Base.establish_connection("\#{ENV.fetch("DATABASE_URL")}&checkout_timeout=60")

      run(lambda do |_env|
        10.times { ActiveRecord::Base.with_connection { |connection| connection.execute("SELECT pg_sleep(0.01)") } }
        [200, { "content-type" => "text/plain" }, []]
      end)
    RUBY

    TWO_SERVERS = <<~RUBY
      require "active_record"
      ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL"))
      class Other < ActiveRecord::Base
        self.abstract_class = true
        establish_connection(ENV.fetch("OTHER_URL"))
      end

      run(lambda do |env|
        base, query = env["PATH_INFO"] == "/other" ? [Other, "SELECT 1"] : [ActiveRecord::Base, "SELECT pg_advisory_xact_lock(\#{env["QUERY_STRING"]})"]
        base.with_connection { |connection| connection.execute(query) }
        [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
      end)
    RUBY

    # Notes who has got a connection, and when the request came.
    IN_ORDER = <<~'RUBY'
      require "active_record"
      ActiveRecord::Base.establish_connection("#{ENV.fetch("DATABASE_URL")}&checkout_timeout=20")

      run(lambda do |env|
        number, seconds = env["QUERY_STRING"].split("&")
        ActiveRecord::Base.with_connection do |connection|
          File.write("served", "#{env["HTTP_X_REQUEST_START"].delete_prefix("t=")} #{number}\n", mode: "a")
          connection.execute("SELECT pg_sleep(#{seconds})")
        end
        [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
      end)
    RUBY

    # /leave: a connection that is lost, and whose owner has ended without giving it back.
    OWNERS_THAT_END = <<~'RUBY'
      require "active_record"
      ActiveRecord::Base.establish_connection("#{ENV.fetch("DATABASE_URL")}&checkout_timeout=2")

      run(lambda do |env|
        if env["PATH_INFO"] == "/leave"
          Thread.new do
            connection = ActiveRecord::Base.connection_pool.checkout
            connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
          rescue ActiveRecord::ActiveRecordError
            nil
          end.join
        else
          ActiveRecord::Base.with_connection { |connection| connection.execute("SELECT 1") }
        end
        [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
      end)
    RUBY

    def setup
      super
      @url = ENV.fetch("TEST_DATABASE_URL")
      @name = "budget-#{Process.pid}-#{rand(1 << 32)}"
      @observer = PG.connect(@url)
    end

    def teardown
      @observer&.close
      super
      mariadb.query("DROP USER #{@mariadb_user}") if @mariadb_user
      @mariadb&.each(&:close)
    end

    timing def test_a_burst_over_all_workers_stays_within_the_budget_and_is_served_in_time
      limit = BOUND * BURST * HOLD / BUDGET
      serve do |server|
        seconds = nil
        most = most_connections_while { seconds = seconds_of_burst(server, ["/?#{HOLD}"] * BURST) }

        assert_operator most, :<=, BUDGET
        assert_operator seconds, :<, limit
      end
    end

    # With a connection for each of two workers and more, and with one for both. Requests that run at once may end in any order, and a
    # connection on its way to either worker does not turn back for an older request of the other.
    { 4 => 10, 1 => 2 }.each do |budget, apart|
      timing define_method(:"test_#{budget}_connections_serve_the_requests_of_all_workers_in_the_order_in_which_they_came") {
        serve("--database-connections", budget.to_s, "--workers", "2", app: IN_ORDER) do |server|
          clients = in_turn(server, 10) { |number| "/?#{number}&0.05" }
          assert_median_below(apart + 1, "who was farthest from where it should be", runs: 3, unit: "places") do
            served = order_in_which_they_are_served(server, clients)
            came = served.sort
            served.each_with_index.map { |request, place| (came.index(request) - place).abs }.max
          end
        ensure
          clients&.each_value(&:close)
        end
      }
    end

    def test_what_is_lost_with_its_owner_leaves_its_room_to_others
      serve("--database-connections", "2", "--workers", "1", app: OWNERS_THAT_END) do |server|
        3.times { assert_equal %w[200 200], [server.get("/leave").code, server.get("/").code] }
      end
    end

    def test_a_worker_gives_its_idle_connection_to_another_that_waits
      serve("--database-connections", "1", "--workers", "2") do |server|
        clients = clients_of_two_workers(server)
        most = most_connections_while do
          5.times { clients.each { |client| assert client.ask, client.take_failures.inspect } }
        end

        assert_equal 1, most
      ensure
        clients&.each(&:close)
      end
    end

    def test_what_a_killed_worker_had_comes_back_when_the_database_has_closed_its_side
      serve("--database-connections", "2", "--workers", "2") do |server|
        requests = Array.new(2) { server.connect }
        requests.each { |socket| socket.write("GET /?4 HTTP/1.1\r\nHost: localhost\r\n\r\n") }
        eventually("both queries run") { queries_that_run == 2 }
        most = most_connections_while do
          server.worker_pids.each { |pid| Process.kill(:KILL, pid) }

          # Their queries go on for a while, and PostgreSQL does not look for a client meanwhile.
          assert_equal "200", server.get("/?0.001").code
        end

        assert_operator most, :<=, 2
        assert_equal ["200"] * 10, Array.new(10) { server.get("/?0.001").code }
      ensure
        requests&.each(&:close)
      end
    end

    %w[trilogy mysql2].each do |adapter|
      timing define_method(:"test_with_#{adapter}_connections_go_from_worker_to_worker_and_a_killed_ones_share_comes_back") {
        serve_mariadb(adapter) do |server|
          clients = clients_of_two_workers(server)
          5.times { clients.each { |client| assert client.ask, client.take_failures.inspect } }
          # The database has seen it at once, and so does the supervisor: where it sees no socket, it waits for 5 s.
          before = server.worker_pids
          before.each { |pid| Process.kill(:KILL, pid) }
          eventually("there are others") { server.worker_pids.size == 2 && (server.worker_pids & before).empty? }
          assert_operator duration { assert_equal "200", server.get("/?0.001").code }, :<, 4.5
        ensure
          clients&.each(&:close)
        end
      }
    end

    %w[trilogy mysql2].each do |adapter|
      define_method(:"test_with_#{adapter}_the_server_lists_no_more_than_the_budget_and_one_a_worker_that_ends_queries") do
        user = mariadb_user
        listed = lister(user)
        asleep = lister(user, "info LIKE '%SLEEP(20%'")
        serve_mariadb(adapter, "--database-connections", "6", "--cancel-abandoned", user:) do |server|
          burst = -> { seconds_of_burst(server, ["/?0.05"] * 60) }

          assert_equal 6, most_connections_while(listed) { 2.times { burst.call } }
          # With trilogy a connection is closed with its query, and replaced at once: where the server is slow to notice, it
          # lists both for a moment. What it lists in each of several successive looks counts.
          looks = []
          latest = -> { (looks << listed.call).last(20).min }
          most = most_connections_while(latest) do
            6.times { seconds_until_abandoned(server, "/?20", asleep) }
            burst.call
          end
          assert_operator most, :<=, 6 + 2
          refute_equal 0, lister(user, "db IS NULL").call, "of the connections that end queries"
        end
      end
    end

    def test_each_database_server_has_a_budget_of_its_own
      environment = { "DATABASE_URL" => "#{@url}?application_name=#{@name}", "OTHER_URL" => mariadb_url }
      with_server(TWO_SERVERS, "--workers", "2", "--database-connections", "1", env: environment) do |server|
        first = while_locked do |lock|
          request = Thread.new { server.get("/?#{lock}").code }
          eventually("the query runs") { queries_that_run("pg_advisory") == 1 }
          assert_equal "200", server.get("/other").code
          request
        end
        assert_equal "200", first.value
      end
    end

    def test_while_new_code_takes_over_old_and_new_have_no_more_together
      app = APP.sub('env["QUERY_STRING"].to_f', "0.03")
      serve("--database-connections", "4", "--workers", "2", app:) do |server|
        run = nil
        most = most_connections_while do
          # More than four connections can do: the old code has all in use when the new one comes.
          run = Restarts.new(server, rate: 200, seconds: 3, restarts: 2, clients: 16).run { server.restart(:USR2) }
        end

        assert_empty run.failures
        assert_operator most, :<=, 4
        assert_operator run.clients.sum(&:answers), :>, 100
      end
    end

    def test_it_bounds_a_process_that_serves_alone_too
      serve("--workers", "0", "--database-connections", "3") do |server|
        most = most_connections_while { seconds_of_burst(server, ["/?0.02"] * 30) }

        assert_equal 3, most
      end
    end

    def test_a_request_that_waits_too_long_is_told_who_has_the_connections_and_what_to_do
      app = APP.sub('pg_sleep(#{seconds})', 'pg_advisory_xact_lock(#{seconds.to_i})').sub("to_f", "to_i")
      serve("--database-connections", "1", "--workers", "1", app:, env: { "CHECKOUT" => "0.2" }) do |server|
        # The 0.2 s bound the supervisor's grant of the first one too.
        eventually("a connection is open") { server.get("/").code == "200" }
        earlier = server.log
        first = while_locked do |lock|
          request = Thread.new { server.get("/?#{lock}").code }
          eventually("the query runs") { queries_that_run("pg_advisory") == 1 }

          assert_equal "500", server.get("/").code
          request
        end
        assert_equal "200", first.value
        told = server.log.delete_prefix(earlier)
        assert_match(/could not obtain a connection.*Pool "primary" \(role writing\): 1 of 1 .* in use, 1 waiting; held by fiber \S+ for \S+ s, now at .*config.ru:\d+/m, told)
        assert_match(/database_connections/, told)
      end
    end

    # The first query tells the supervisor of a database server, which it would report to the init process.
    def test_without_the_init_process_a_request_that_runs_gets_its_first_connection
      app = APP.sub("  seconds = ", "  File.write(\"begun\", \"\")\n  sleep 0.01 until File.exist?(\"go\")\n  seconds = ")
      serve("--workers", "1", app:) do |server|
        request = Thread.new { server.get("/?0").code }
        eventually("the request runs") { File.exist?(server.path("begun")) }
        others = server.descendant_pids
        server.signal(:KILL)
        eventually("the supervisor has noticed") { server.log.include?("The init process has ended") }
        server.write("go", "")

        assert_equal "200", request.value
        eventually("all have ended") { others.none? { |pid| server.alive?(pid) } }
        refute_includes server.log, "Error"
      end
    end

    # To be closed here and opened there takes a connection as long as a hundred queries.
    def test_a_burst_finds_the_connections_of_the_last_one
      with_server(TEN_QUERIES, "--workers", "2", "--database-connections", "90",
                  "--queue-target", "0", env: { "DATABASE_URL" => "#{@url}?application_name=#{@name}" }) do |server|
        opened = Array.new(8) { opened_while { seconds_of_burst(server, ["/"] * 200) } }

        assert_operator opened.first, :>, 20
        assert_operator opened.drop(1).min, :<=, opened.first / 4, opened.inspect
      end
    end

    private

    def serve_mariadb(adapter, *flags, user: nil, &)
      url = mariadb_url.sub("mysql2:", "#{adapter}:")
      url = url.sub(%r{//[^@]*@}, "//#{user}:#{user}@") if user
      flags = ["--database-connections", "1"] if flags.empty?
      app = APP.sub("SELECT pg_sleep", "SELECT SLEEP").sub("&checkout", "?checkout")
      with_server(app, "--workers", "2", *flags, env: { "DATABASE_URL" => url }, &)
    end

    def mariadb_url = ENV.fetch("TEST_MARIADB_URL")

    # @return [String] a user whom the server knows until the end of the test; the password is the same.
    def mariadb_user
      user = @name.tr("-", "_")
      mariadb.query("CREATE USER #{user} IDENTIFIED BY '#{user}'")
      @mariadb_user = user
      mariadb.query("GRANT ALL ON fairlead.* TO #{user}")
      user
    end

    # @return [Trilogy] a connection of its own each time.
    def mariadb
      mariadb_url
      (@mariadb ||= []).push(Trilogy.new(**Databases.mariadb_settings)).last
    end

    # @return [Proc] tells how many connections of a user MariaDB lists.
    def lister(user, condition = "TRUE")
      client = mariadb
      query = "SELECT count(*) FROM information_schema.processlist WHERE user = '#{user}' AND #{condition}"
      -> { client.query(query).rows.first.first }
    end

    # @return [Array(KeepAliveClient, KeepAliveClient)] each with a connection to a worker of its own.
    def clients_of_two_workers(server)
      found = {}
      eventually("both workers have connections") do
        burst = Array.new(20) { KeepAliveClient.new(server, "/?0.001") }
        burst.map { |client| Thread.new { client.ask } }.each(&:join)
        burst.each { |client| found.key?(client.worker) ? client.close : found[client.worker] = client }
        found.size == 2
      end
      found.values
    end

    # Clients of one worker and of the other, so many of each.
    #
    # @return [Hash{Integer => KeepAliveClient}] number => client, in turn.
    def in_turn(server, count, &path)
      all = {}
      workers = eventually("enough of each worker") do
        fresh = Array.new(20) { |n| [all.size + n, KeepAliveClient.new(server, path.call(all.size + n))] }
        all.update(fresh.to_h)
        fresh.map { |_, client| Thread.new { client.ask } }.each(&:join)
        groups = all.group_by { |_, client| client.worker }.values
        groups if groups.size == 2 && groups.all? { |group| group.size >= count }
      end
      chosen = workers.map { |group| group.first(count) }.inject(:zip).flatten(1).to_h
      all.each { |number, client| client.close unless chosen.key?(number) }
      chosen
    end

    # @return [Integer] how many connections have been opened meanwhile, of those that are open now.
    def opened_while
      before = backends
      yield
      (backends - before).size
    end

    # They ask one after the other, of one worker and of the other in turn, and more quickly than they are served.
    #
    # @return [Array(Float, Integer)] when each came to its worker, and the client's number.
    def order_in_which_they_are_served(server, clients)
      File.write(server.path("served"), "")
      clients.each_value.map { |client| Thread.new { client.ask }.tap { sleep(0.004) } }.each(&:join)
      assert_empty clients.each_value.flat_map(&:take_failures)
      File.readlines(server.path("served")).map { |line| line.split.then { |came, number| [came.to_f, number.to_i] } }
    end

    def serve(*flags, env: {}, app: APP, **, &)
      with_server(app, "--workers", WORKERS.to_s, "--database-connections", BUDGET.to_s, *flags,
                  env: { "DATABASE_URL" => "#{@url}?application_name=#{@name}" }.merge(env), **, &)
    end

    # @param count [#call] tells how many there are.
    # @return [Integer] the most that the database has shown meanwhile: PostgreSQL, unless another is asked.
    def most_connections_while(count = method(:open_connections))
      most = 0
      done = false
      observer = Thread.new do
        until done
          most = [most, count.call].max
          sleep 0.002
        end
      end
      yield
      done = true
      observer.join
      [most, count.call].max
    ensure
      done = true
      observer.join
    end

    def queries_that_run(part = "pg_sleep")
      @observer.exec_params(<<~SQL, [@name, "%#{part}%"]).getvalue(0, 0).to_i
        SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND state = 'active' AND query LIKE $2
      SQL
    end

    # @yieldparam lock [Integer] of PostgreSQL: who asks for it waits until the block is done.
    def while_locked
      lock = rand(1 << 62)
      @observer.exec_params("SELECT pg_advisory_lock($1)", [lock])
      yield lock
    ensure
      @observer.exec_params("SELECT pg_advisory_unlock($1)", [lock])
    end

    def open_connections = backends.size

    # @return [Array<String>] process ids.
    def backends
      @observer.exec_params("SELECT pid FROM pg_stat_activity WHERE application_name = $1", [@name]).column_values(0)
    end
  end
end
