# frozen_string_literal: true

require_relative "../../bench/harness/free_port"
require_relative "../drivers/databases"
require_relative "rails_app"

module Fairlead
  # Who serves a Rails app, and what the app finds itself in.
  # Covers integrations/rails/railtie.rb
  class RailsServingTest < RailsTest
    include Databases
    needs :database

    def test_bin_rails_server_serves_with_fairlead_though_puma_is_in_the_bundle
      server = rails(:rails)
      about = server.json("/about")

      assert_served about
      assert_equal "production", about["environment"]
      # In production, a worker for each core.
      assert_equal server.supervisor_pid, about["parent"]
      assert_equal Etc.nprocessors, server.worker_pids.size
    end

    def test_in_development_the_foreground_process_serves
      about = in_development.json("/about")

      assert_served about
      assert_equal in_development.pid, about["pid"]
    end

    def test_rackup_serves_a_rails_app
      assert_served rails(:rackup, "-E", "production").json("/about")
    end

    # Fibers of so deep calls have to be asked for before Ruby starts.
    def test_a_partial_within_itself_goes_as_deep_as_in_a_thread_of_puma
      env = ServerProcess::STACKS.transform_values { nil }
      { rails: [], rackup: ["-E", "production"], fairlead: [] }.each do |command, flags|
        assert_equal "200", rails(command, *flags, env:).get("/depth?levels=500").code, command
      end
    end

    def test_a_runner_is_not_served_and_stays_as_it_is
      server = rails_app(:rails)
      written = server.run("bin/rails", "runner", <<~RUBY)
        p Fairlead.serving?, SERVING_IN_INITIALIZER, ActiveSupport::IsolatedExecutionState.isolation_level
      RUBY

      assert_equal "false\nfalse\n:thread\n", written
    end

    def test_a_console_is_not_served_and_stays_as_it_is
      server = rails_app(:rails)
      server.write("typed", <<~RUBY)
        p [Fairlead.serving?, SERVING_IN_INITIALIZER, ActiveSupport::IsolatedExecutionState.isolation_level]
      RUBY
      written = server.run("-e", '$stdin.reopen("typed"); load "bin/rails"', "console")

      assert_includes written, "[false, false, :thread]\n"
    end

    def test_another_server_can_be_asked_for
      server = rails(:rails, "-u", "puma", ready: false)
      eventually("Puma serves") { server.log[/Listening on http:\S+:(\d+)/] || server.ended? }
      about = JSON.parse(Net::HTTP.get(URI("#{server.log[/Listening on (\S+)/, 1]}/about")))

      refute about["serving"]
      assert_equal "thread", about["isolation"]
    end

    def test_an_app_that_asks_for_isolation_by_thread_is_told_that_it_gets_fibers
      server = rails(:rails, files: { "config/initializers/isolation.rb" => <<~RUBY })
        Rails.application.config.active_support.isolation_level = :thread
      RUBY

      assert_equal "fiber", server.json("/about")["isolation"]
      assert_match(/isolation_level is :thread.*:fiber is used/, server.log)
    end

    def test_a_connection_that_an_initializer_has_leased_is_given_back
      assert_equal 0, in_development.json("/stat")["busy"]
    end

    def test_the_pid_file_is_there_until_the_server_ends
      server = rails(:rails, "-P", "tmp/server.pid", env: { "WEB_CONCURRENCY" => "1" })
      path = server.path("tmp/server.pid")

      assert_equal server.pid, File.read(path).to_i

      worker = server.worker_pids.first
      Process.kill(:TERM, worker)
      eventually("the worker is replaced") { server.worker_pids.any? && !server.worker_pids.include?(worker) }

      assert_path_exists path
      server.stop

      refute_path_exists path
    end

    def test_it_can_go_into_the_background
      port = Bench::FreePort.find
      server = rails_app(:rails, env: { "WEB_CONCURRENCY" => "1" })
      server.run("bin/rails", "server", "-d", "-b", "127.0.0.1", "-p", port.to_s, "-P", "tmp/server.pid")
      about = eventually("it serves", within: 30) { get("http://127.0.0.1:#{port}/about") }
      pid = File.read(server.path("tmp/server.pid")).to_i

      assert_equal "#{JSON.parse(about)["parent"]}\n", `ps -o pid= --ppid #{pid}`.lstrip, "its worker's parent is the supervisor, its child"
    ensure
      Process.kill(:TERM, pid) if pid
      eventually("it has ended", within: 30) { pid.nil? || !server.alive?(pid) }
    end

    def test_a_taken_port_is_one_clear_message
      TCPServer.open("127.0.0.1", 0) do |taken|
        server = rails(:rails, "-p", taken.addr[1].to_s, ready: false)
        status = server.wait_for_end

        refute_predicate status, :success?
        assert_includes server.log, taken.addr[1].to_s
        refute_match(/\.rb:\d+:in /, server.log)
      end
    end

    def test_the_generator_writes_a_configuration_and_the_command_serves_the_app_with_it
      server = rails_app(:fairlead)
      written = server.run("bin/rails", "generate", "fairlead:install")

      assert_match(%r{create\s+config/fairlead.rb}, written)
      # SQLite bounds no connections, and 20 are enough.
      assert_match(/^# database_connections \d+$/, File.read(server.path("config/fairlead.rb")))
      server.start.wait_until_ready

      assert_served server.json("/about")
    end

    %w[mysql2 trilogy].each do |adapter|
      define_method("test_the_generator_asks_mariadb_through_#{adapter}_how_many_connections_it_allows") do
        allowed = Trilogy.new(**Databases.mariadb_settings).query("SELECT @@max_connections").first.first
        app = rails_app(:fairlead, env: { "DATABASE_URL" => Databases.url(adapter) },
                                   files: { "config/database.yml" => "production:\n  adapter: #{adapter}\n" })
        app.run("bin/rails", "generate", "fairlead:install")

        refute_equal 100, allowed, "this is what is taken where nothing is asked"
        assert_includes File.read(app.path("config/fairlead.rb")), "\ndatabase_connections #{(allowed * 0.9).floor}\n"
      end
    end

    private

    def in_development
      shared_rails(:rails, environment: "development", files: { "config/initializers/leases.rb" => <<~RUBY })
        ActiveRecord::Base.lease_connection.select_value("SELECT 1")
      RUBY
    end

    # In fibers, and known to the app before its initializers.
    def assert_served(about)
      assert_equal [true, true, "fiber", true],
                   about.values_at("serving", "serving_in_initializer", "isolation", "task")
    end

    def get(url)
      Net::HTTP.get(URI(url))
    rescue SystemCallError
      nil
    end
  end
end
