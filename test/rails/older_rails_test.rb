# frozen_string_literal: true

require "json"
require_relative "../bundle"
require_relative "../drivers/databases"
require_relative "../fairlead/active_record/pool_interruptions"
require_relative "plain_fibers"
require_relative "rails_app"

module Fairlead
  # Apps that have stayed with an older Rails: their pools are ActiveRecord's own. Each version has a bundle of its own, in
  # test/older_rails.
  module OlderRails
    APP = {
      "config/database.yml" => "production:\n  adapter: postgresql\n  pool: 5\n  checkout_timeout: 60\n",
      "config/initializers/state.rb" => <<~'RUBY',
        Rails.application.config.middleware.use(Class.new do
          def initialize(app) = @app = app

          def call(env)
            Current.number = 7
            @app.call(env)
          end
        end)
      RUBY
      "app/controllers/lives_controller.rb" => <<~'RUBY',
        class LivesController < ActionController::Base
          include ActionController::Live

          def events
            response.stream.write("#{Async::Task.current?.class} of number #{Current.number} has #{Item.count} items")
          ensure
            response.stream.close
          end
        end
      RUBY
      "app/controllers/probes_controller.rb" => <<~'RUBY'
        class ProbesController < ActionController::Base
          def about
            render json: { rails: Rails.version, isolation: ActiveSupport::IsolatedExecutionState.isolation_level }
          end

          # The first ones wait until all connections are in use.
          def query
            found = Item.find(params[:number])
            Item.connection_pool.with_connection do |connection|
              process = connection.select_value("SELECT pg_backend_pid()")
              sleep 0.01 until @@full ||= Item.connection_pool.stat[:busy] == 5
              again = connection.select_value("SELECT pg_backend_pid() FROM pg_sleep(0.01)")
              render json: { name: found.name, processes: [process, again] }
            end
          end
          @@full = false

          # Where nothing can be tried again.
          def goes_on
            Timeout.timeout(0.1) { Item.connection.execute("SELECT pg_sleep(20)") }
          rescue Timeout::Error
            render plain: Item.where("id < 3").update_all("name = name")
          end

          # The first one that waits is called, and goes.
          def interrupted
            pool = Item.connection_pool
            held = Array.new(5) { pool.checkout }
            first, second = Array.new(2) { Async { pool.with_connection { "served" } } }
            pool.checkin(held.pop)
            first.stop
            render plain: Async::Task.current.with_timeout(10) { second.wait }
          ensure
            held.each { |connection| pool.checkin(connection) }
          end

          def keep
            Item.connection_pool.with_connection { sleep 0.01 until File.exist?("over") }
            head :ok
          end
        end
      RUBY
    }.freeze
    COMMAND = File.join(ServerProcess::ROOT, "exe/fairlead")

    def self.included(test)
      test.const_set(:BUNDLE, Bundle.new("test/older_rails/#{test::RAILS}/Gemfile"))
    end

    def setup
      super
      postgresql
      skip bundle.missing if bundle.missing
    end

    def test_requests_wait_for_the_connections_that_there_are
      numbers = [*1..10] * 2
      answers = server.json_at_once(*numbers.map { |number| "/query?number=#{number}" })

      assert_equal(numbers.map { |number| "item #{number}" }, answers.map { |answer| answer["name"] })
      assert(answers.all? { |answer| answer["processes"].uniq.one? })
      assert_equal 5, answers.flat_map { |answer| answer["processes"] }.uniq.size
    end

    def test_who_is_interrupted_leaves_its_turn_to_the_next
      assert_equal "served", server.get("/interrupted").body
    end

    def test_a_request_goes_on_after_a_timeout_of_a_statement
      assert_equal "2", server.get("/goes_on").body
    end

    def test_it_is_that_version_and_goes_by_fiber
      about = server.json("/about")

      assert_equal "fiber", about["isolation"]
      assert_operator about["rails"], :start_with?, self.class::RAILS
    end

    def test_a_stream_is_a_fiber_too
      assert_equal "Async::Task of number 7 has 10 items", server.get("/live").body
    end

    def test_the_banner_says_what_is_so
      assert_match(/^  database   primary: up to 5 connections in each worker .*; other requests wait for one\.$/, server.log)
      assert_match(%r{^  database   To lift that, raise pool in config/database\.yml\.$}, server.log)
      assert_match(/^  database   ActiveRecord #{self.class::RAILS}\S* keeps its pools as they are: database_connections,/, server.log)
    end

    def test_status_shows_who_waits_for_a_connection
      kept = Array.new(7) { Thread.new { server.get("/keep").code } }
      said = eventually("all connections are held") do
        text = server.run(COMMAND, "status")
        text if text.include?("5 of 5, 2 wait")
      end

      assert_match(/2 requests of worker 0 .* wait for a database connection: its pool primary is full \(5 of 5 in use\)/, said)
    ensure
      server.write("over", "")
      assert_equal ["200"], kept.map(&:value).uniq
    end

    include PoolInterruptions

    # Each in the version's own way; 8.1's test knows more of them.
    def test_a_pool_stays_whole_wherever_a_request_is_interrupted
      operations = ["opens a connection", "waits in line", "checks in", "ends a request", "removes", "reaps", "disconnects all", "flushes"]
      { "request_timeout" => %w[2 fiber], "timeouts" => %w[1 fiber] }.each do |kind, held|
        assert_whole_wherever(kind, operations, [held])
      end
    end

    # Templates are streamed by 8.1's test.
    PlainFibers.instance_methods(false).grep(/\Atest_/).grep_v(/streamed/).each do |test|
      define_method(test, PlainFibers.instance_method(test))
    end
    NUMBERS = PlainFibers::NUMBERS

    private

    def bundle = self.class::BUNDLE

    def bundle_environment = bundle.environment

    def server
      shared_rails(:fairlead, "--workers", "1", "--queue-target", "0", env: bundle.environment, files: APP, database: postgresql)
    end

    def fibers
      shared_rails(:fairlead, "--workers", "1", "--queue-target", "0", name: :fibers, env: bundle.environment, files: PlainFibers::APP,
                                                                       database: postgresql)
    end
  end

  # The oldest one, and what is the same with all of them.
  # Covers active_record/own_queue.rb
  class Rails71Test < RailsTest
    needs :database

    RAILS = "7.1"
    include OlderRails
    include Databases

    # Without Rails: the path is an adapter, and how long to sleep.
    MARIADB = <<~'RUBY'
      require "active_record"
      RECORDS = %w[mysql2 trilogy].to_h do |adapter|
        record = Class.new(ActiveRecord::Base) { self.abstract_class = true }
        record.define_singleton_method(:name) { "#{adapter.capitalize}Record" }
        record.establish_connection("#{ENV.fetch(adapter)}?pool=1")
        [adapter, record]
      end

      run(lambda do |env|
        _, adapter, seconds = env["PATH_INFO"].split("/")
        RECORDS.fetch(adapter).connection_pool.with_connection { |connection| connection.select_value("SELECT SLEEP(#{seconds})") }
        [200, { "content-type" => "text/plain" }, [Gem.loaded_specs.fetch(adapter).version.to_s]]
      end)
    RUBY

    # With a trilogy of its time.
    %w[mysql2 trilogy].each do |adapter|
      define_method("test_queries_of_#{adapter}_wait_in_line_and_end_with_their_clients") do
        server = shared_server(MARIADB, "--workers", "1", "--cancel-abandoned", name: :mariadb, env: {
          **bundle.environment, **%w[mysql2 trilogy].to_h { |one| [one, Databases.url(one)] }
        })

        assert_equal ["200"], Array.new(5) { Thread.new { server.get("/#{adapter}/0.1").code } }.map(&:value).uniq
        seconds_until_abandoned(server, "/#{adapter}/20", sleepers(adapter, 20))
        assert_match(adapter == "trilogy" ? /\A2\.10\./ : /\A0\.5\./, server.get("/#{adapter}/0").body)
      end
    end

    def test_database_connections_is_refused_whoever_loads_the_app
      %w[--preload --no-preload].each do |preload|
        server = app("--database-connections", "90", "--workers", "2", preload).start

        refute_predicate server.wait_for_end, :success?
        assert_match(/^fairlead: --database-connections: `database_connections 90` needs ActiveRecord >= 8\.1, < 8\.2, and the app has 7\.1/,
                     server.log)
        refute_match(/\.rb:\d+:in /, server.log)
      end
    end

    def test_doctor_says_what_it_does_not_have
      said = app.run(COMMAND, "doctor", "-e", "production")

      assert_match(/^– ActiveRecord 7\.1\.\d+ keeps its pools as they are: .*\n    → Update Rails\.$/, said)
      assert_match(%r{^✗ Few connections in each worker: primary \(5\).*\n    → Raise pool in config/database\.yml\.$}, said)
    end

    def test_the_generator_sets_no_bound
      app = app()

      written = app.run("bin/rails", "generate", "fairlead:install")

      assert_match(%r{create\s+config/fairlead.rb}, written)
      assert_match(/^# database_connections \d+$/, File.read(app.path("config/fairlead.rb")))
    end

    private

    def app(*flags) = rails_app(:fairlead, *flags, env: bundle.environment, files: APP, database: postgresql)
  end

  class Rails72Test < RailsTest
    RAILS = "7.2"
    include OlderRails
  end

  class Rails80Test < RailsTest
    RAILS = "8.0"
    include OlderRails
  end
end
