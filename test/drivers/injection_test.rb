# frozen_string_literal: true

require_relative "../helper"
require_relative "databases"
require_relative "injection"
require_relative "slow_network"
require "pg"
require "trilogy"

module Fairlead
  # A deadline, a client that has gone, Timeout and Task#cancel, once or several times, at every wait of what an app does with
  # its database. Afterwards nothing is open, leaked or locked, by the books of the database itself and of the pool.
  class InjectionTest < Test
    include Databases
    needs :database

    APP = <<~RUBY
      require #{File.join(__dir__, "injected_app").inspect}
      run Fairlead::InjectedApp
    RUBY
    WORK = %w[connect transaction rollback savepoint rescued statement prepared in_line disconnect reap].freeze
    # SQLite has no connection to lose.
    NETWORK_WORK = [*WORK, "reopened", "reopened_twice"].freeze
    # What else is in the address, and the least number of attempts that all of it takes.
    ADAPTERS = {
      "postgresql" => ["", NETWORK_WORK], "mysql2" => ["", NETWORK_WORK], "trilogy" => ["", NETWORK_WORK], "sqlite3" => ["&timeout=2000", WORK],
      "postgresql_tls" => ["&sslmode=require", %w[connect]], "mysql2_tls" => ["&ssl_mode=required", %w[connect]],
      "trilogy_tls" => ["", %w[connect]]
    }.freeze
    # Seconds that each piece takes on its way, so that what is sent is waited for.
    DELAY = 0.001
    private_constant :DELAY

    # The adapters at once: each has a server, a user and a table of its own, and mostly waits.
    NETWORK_WORK.each do |work|
      define_method("test_#{work}") do
        names = ADAPTERS.filter_map { |name, (_, works)| name if works.include?(work) }
        each_at_once(names) do |name|
          # To connect takes long.
          ways = { "reopened" => 3, "reopened_twice" => 1 }.fetch(work) { name.end_with?("_tls") ? 3 : Injection::WAYS.size }
          attempts, *faults = server(name).get("/#{work}?#{ways}").body.lines(chomp: true)

          assert_operator attempts.to_i, :>=, ways, name
          assert_empty faults, "#{name}: #{faults.size} faults"
        end
      end
    end

    def test_it_goes_on_in_its_transaction_once_it_is_connected_again = assert_goes_on("/goes_on")
    def test_it_goes_on_in_its_savepoint_once_it_is_connected_again = assert_goes_on("/goes_on?savepoint")

    class << self
      # @return [String] the same, through a network.
      def through_network(url, **options)
        network = (@networks ||= {})[[url, options]] ||=
          SlowNetwork.new(URI(url).port, delay: DELAY, **options).tap { |one| Minitest.after_run { one.close } }
        url.sub(":#{URI(url).port}/", ":#{network.port}/")
      end
    end

    private

    def assert_goes_on(path)
      each_at_once(%w[postgresql mysql2 trilogy]) { |name| assert_equal "1 0", server(name).get(path).body, name }
    end

    def server(name)
      shared(name) do
        env = name == "sqlite3" ? { "DATABASE_URL" => "sqlite3:injected.sqlite3?pool=2#{ADAPTERS[name].first}", "SQLITE" => "injected.sqlite3" } : environment(name)
        ServerProcess.new(APP, "-w", "1", lint: false, timeout: 240, env:)
      end.tap { |server| assert_equal "ready", server.get("/setup").body, server.log }
    end

    # A user of its own: all its connections are those of the app.
    def environment(name)
      adapter = name.delete_suffix("_tls")
      user = "injected_#{name}"
      adapter == "postgresql" ? postgresql_user(user) : mariadb_user(user)
      url = self.class.through_network(Databases.url(adapter), postgresql_tls: name == "postgresql_tls")
      url = url.sub(%r{//[^@]*@}, "//#{user}:injected@")
      { "DATABASE_URL" => "#{url}?pool=2&checkout_timeout=3#{ADAPTERS[name].first}", "USER_UNDER_TEST" => user, "TRILOGY_TLS" => ("yes" if name == "trilogy_tls"),
        "OBSERVER_URL" => adapter == "postgresql" ? Databases.postgresql : Databases.mariadb }
    end

    def postgresql_user(name)
      PG.connect(Databases.postgresql) do |connection|
        next if connection.exec("SELECT FROM pg_roles WHERE rolname = '#{name}'").ntuples.positive?

        connection.exec("CREATE ROLE #{name} LOGIN SUPERUSER PASSWORD 'injected'")
      end
    end

    def mariadb_user(name)
      client = Trilogy.new(**Databases.mariadb_settings)
      client.query("CREATE USER IF NOT EXISTS #{name} IDENTIFIED BY 'injected'")
      client.query("GRANT ALL ON fairlead.* TO #{name}")
      client.close
    end
  end
end
