# frozen_string_literal: true

require_relative "helper"
require "open3"
require "mysql2"
require "pg"
require "trilogy"

module Fairlead
  # bin/services, with a set of servers beside those that the other tests use.
  class ServicesTest < Test
    needs :database

    # Not made yet: the first start does. Under root it must be where the servers' own user can go.
    FOLDER = "/var/tmp/fairlead-services-test-#{Process.pid}".freeze
    PROGRAM = File.join(ROOT, "bin/services").freeze
    Minitest.after_run do
      system({ "FAIRLEAD_SERVICES" => FOLDER }, PROGRAM, "destroy", out: File::NULL) if File.exist?(FOLDER)
    end

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
      other = "#{FOLDER}-other"
      succeed("start", folder: other)

      ports = [FOLDER, other].product(%w[postgresql mariadb redis]).map do |folder, service|
        URI(succeed("url", service, folder:).chomp).port
      end

      assert_equal 6, ports.uniq.size
    ensure
      services("destroy", folder: other)
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

    def services(*command, folder: FOLDER)
      Open3.capture2e({ "FAIRLEAD_SERVICES" => folder }, PROGRAM, *command)
    end

    def succeed(*command, folder: FOLDER)
      output, status = services(*command, folder:)

      assert_predicate status, :success?, output
      output
    end
  end
end
