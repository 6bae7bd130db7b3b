# frozen_string_literal: true

require_relative "helper"
require_relative "own_services"
require "open3"
require "mysql2"
require "pg"
require "trilogy"

module Fairlead
  # bin/services, with a set of servers beside those that the other tests use.
  class ServicesTest < Test
    needs :database

    FOLDER = OwnServices.folder("test")

    def teardown
      services "stop"
      super
    end

    def test_start_makes_a_postgresql_that_url_leads_to
      assert_match(%r{PostgreSQL started: postgresql://}, succeed("start"))
      database = PG.connect(succeed("url").chomp)

      assert_operator database.exec("SHOW max_connections").getvalue(0, 0).to_i, :>=, 300
      assert_equal "off", database.exec("SHOW fsync").getvalue(0, 0)
      database.close
    end

    def test_start_makes_a_mariadb_that_url_leads_to_with_tls_for_those_who_want_it
      assert_match(%r{MariaDB started: mysql2://}, succeed("start"))
      mysql2 = Mysql2::Client.new(**mariadb)

      assert_operator mysql2.query("SELECT @@max_connections", as: :array).first.first, :>=, 300
      trilogy = Trilogy.new(**mariadb, ssl: true, ssl_mode: Trilogy::SSL_REQUIRED_NOVERIFY)

      assert_match(/TLS/, trilogy.query("SHOW STATUS LIKE 'Ssl_cipher'").rows.first.last)
      [mysql2, trilogy].each(&:close)
    end

    def test_start_makes_a_redis_that_url_leads_to
      assert_match(%r{Redis started: redis://}, succeed("start"))

      assert_equal ["+OK", "+PONG"], redis("AUTH #{redis_address.password}", "PING")
      assert_match(/\A-NOAUTH/, redis("PING").first)
    end

    def test_nobody_gets_in_without_the_password
      succeed("start")
      address = URI(succeed("url").chomp)
      address.password = "guessed"

      assert_raises(PG::ConnectionBad) { PG.connect(address.to_s) }
      assert_raises(Mysql2::Error) { Mysql2::Client.new(**mariadb, password: "guessed") }
      assert_raises(Mysql2::Error) { Mysql2::Client.new(**mariadb, username: "root", password: nil) }
    end

    def test_a_second_start_leaves_the_running_one_alone
      succeed("start")
      address = succeed("url")

      assert_match(/runs already/, succeed("start"))
      assert_equal address, succeed("url")
      assert_equal 3, succeed("start").scan("runs already").size
    end

    def test_two_sets_run_beside_each_other
      succeed("start")
      other = OwnServices.folder("other")
      succeed("start", folder: other)

      ports = [FOLDER, other].product(%w[postgresql mariadb redis]).map do |folder, service|
        URI(succeed("url", service, folder:).chomp).port
      end

      assert_equal 6, ports.uniq.size
    ensure
      services("destroy", folder: other)
    end

    # Opens a lane of bin/test, and tells where its servers are.
    LANE = <<~RUBY
      lane = Fairlead::Suite::Lane.new(0, ".", databases: true)
      lane.open
      puts lane.instance_variable_get(:@environment).fetch("TEST_DATABASE_URL")
      $stdout.flush
      gets
      lane.close
    RUBY
    CLEAR_AWAY = "Fairlead::Suite::Lane.clear_away(databases: true)"

    def test_the_next_run_clears_away_the_servers_of_one_that_was_killed_and_no_others
      succeed("start")
      killed, living = %w[killed living].map { |name| in_the_suite(LANE, "#{FOLDER}-#{name}") }
      urls = [killed, living].map { |lane| lane.gets.chomp }
      Process.kill(:KILL, killed.pid)
      killed.close
      urls.each { |url| PG.connect(url).close }
      in_the_suite(CLEAR_AWAY, FOLDER).close

      assert_raises(PG::ConnectionBad) { PG.connect(urls.first) }
      [urls.last, succeed("url").chomp].each { |url| PG.connect(url).close }
      assert_equal ["#{FOLDER}-living-1", "#{FOLDER}-living-1.lock"], Dir["#{FOLDER}-*-1*"].sort
      living.puts
      living.close
      assert_empty Dir["#{FOLDER}-*-1*"]
    end

    # The pid that a server has left may be another program's by now.
    def test_who_has_the_pid_of_a_killed_server_is_left_alone
      succeed("start")
      other = fork { Process::UID.change_privilege(File.stat(FOLDER).uid) && exec("sleep", "600") }
      files = %w[postgresql/data/postmaster.pid mariadb/pid].map { |name| File.join(FOLDER, name) }
      killed = files.map { |file| File.readlines(file).first.to_i }
      killed.each { |pid| Process.kill(:KILL, pid) }
      eventually("they have ended") { killed.none? { |pid| File.exist?("/proc/#{pid}") } }
      files.each { |file| File.write(file, other.to_s) }

      assert_equal 3, services("status").last.exitstatus
      succeed("destroy")
      assert_nil Process.wait(other, Process::WNOHANG), "it runs"
      refute_path_exists FOLDER
    ensure
      Process.kill(:KILL, other) && Process.wait(other)
    end

    def test_data_outlives_a_stop_and_a_start
      succeed("start")
      PG.connect(succeed("url").chomp) { |database| database.exec("CREATE TABLE IF NOT EXISTS kept (id integer)") }
      Mysql2::Client.new(**mariadb).query("CREATE TABLE IF NOT EXISTS kept (id integer)")
      succeed("stop")
      succeed("start")

      PG.connect(succeed("url").chomp) do |database|
        assert_equal "0", database.exec("SELECT count(*) FROM kept").getvalue(0, 0)
      end
      assert_equal [{ "count" => 0 }], Mysql2::Client.new(**mariadb).query("SELECT count(*) AS count FROM kept").to_a
    end

    def test_status_tells_by_its_exit_status_whether_all_run
      output, status = services("status")

      assert_equal 3, status.exitstatus
      assert_match(/PostgreSQL does not run/, output)
      assert_match(/MariaDB does not run/, output)
      assert_match(/Redis does not run/, output)
      succeed("start")
      running = succeed("status")

      assert_match(/PostgreSQL runs/, running)
      assert_match(/MariaDB runs/, running)
      assert_match(/Redis runs/, running)
      succeed("stop")

      assert_equal 3, services("status").last.exitstatus
    end

    def test_url_says_what_to_do_when_nothing_runs
      output, status = services("url")

      refute_predicate status, :success?
      assert_match(%r{PostgreSQL does not run: bin/services start}, output)
    end

    def test_url_names_the_services_that_there_are
      output, status = services("url", "oracle")

      refute_predicate status, :success?
      assert_match(/no oracle: postgresql mariadb redis/, output)
    end

    private

    def mariadb
      address = URI(succeed("url", "mariadb").chomp)
      { host: address.host, port: address.port, username: address.user, password: address.password,
        database: address.path.delete_prefix("/") }
    end

    def redis_address = URI(succeed("url", "redis").chomp)

    # @return [Array<String>] a line for each command.
    def redis(*commands)
      TCPSocket.open("127.0.0.1", redis_address.port) do |socket|
        commands.map do |command|
          socket.write("#{command}\r\n")
          socket.gets.chomp
        end
      end
    end

    def in_the_suite(program, folder)
      IO.popen([{ "FAIRLEAD_SERVICES" => folder }, RbConfig.ruby, "-r", File.join(ROOT, "test/suite"), "-e", program], "r+")
    end

    def services(*command, folder: FOLDER)
      Open3.capture2e({ "FAIRLEAD_SERVICES" => folder }, OwnServices::PROGRAM, *command)
    end

    def succeed(*command, folder: FOLDER)
      output, status = services(*command, folder:)

      assert_predicate status, :success?, output
      output
    end
  end
end
