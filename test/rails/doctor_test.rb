# frozen_string_literal: true

require "pg"
require_relative "../drivers/databases"
require_relative "rails_app"

module Fairlead
  # `fairlead doctor` in a Rails app.
  # Covers doctor.rb, doctor/code.rb, doctor/databases.rb, doctor/gems.rb
  class RailsDoctorTest < RailsTest
    include Databases
    needs :database

    FINE = { "app/controllers/probes_controller.rb" => "class ProbesController < ActionController::Base; end\n" }.freeze
    HURTING = {
      "app/models/hurting.rb" => <<~RUBY,
        class Hurting
          def self.pinned = Item.connection.select_value("SELECT 1")
          def self.also_pinned = Item.lease_connection
          def self.fine = Item.with_connection { |connection| connection.select_value("SELECT 1") }
          def self.no_model = Faraday.connection
          def self.local = Thread.current[:user] = 1
          def self.checked_out = Item.connection_pool.checkout
          def self.no_database = Faraday.connection_pool.checkout
          def self.moves = Dir.chdir("tmp") { `ls` }
          def self.swaps = Bundler.with_unbundled_env { ENV["A"] = "b" }
          def self.asks = [File.umask, Dir.pwd, ENV["A"], Shell.cd("tmp")]
          def self.pinned_again = Item.lease_connection
        end
      RUBY
      **FINE,
      "app/models/item.rb" => <<~RUBY,
        class Item < ActiveRecord::Base
          include Counted
          scope :first_ones, -> { where(id: connection.select_values("SELECT 1")) }

          def self.ruby = connection.select_value("SELECT 1")
          def self.given(connection) = connection.select_value("SELECT 1")
          def self.locals = (Thread.current[:items] ||= []) << (Thread.current[:count] += 1)

          class << self
            def inner = self.connection.select_value("SELECT 1")
          end

          def asked = self.class.connection
        end
      RUBY
      "app/models/item/peer.rb" => <<~RUBY,
        class Item
          class Peer < ActiveRecord::Base
            def connection = "of its own"
            def told = connection.upcase
          end
        end
      RUBY
      "app/models/concerns/counted.rb" => <<~RUBY,
        module Counted
          extend ActiveSupport::Concern

          class_methods do
            def counted = connection.select_value("SELECT 1")
          end
        end
      RUBY
      "lib/tasks/items.rake" => "task(items: :environment) { p Item.lease_connection }\n",
      "config/initializers/isolation.rb" => "Rails.application.config.active_support.isolation_level = :thread\n",
      "config/database.yml" => "production:\n  adapter: postgresql\n  max_connections: 5\n",
      "config/initializers/gems.rb" => <<~RUBY
        Gem.loaded_specs["typhoeus"] = Gem::Specification.new("typhoeus", "1.4.1")
        Gem.loaded_specs["request_store"] = Gem::Specification.new("request_store", "1.7.0")
        Gem.loaded_specs["bunny"] = Gem::Specification.new("bunny", "3.5.0")
        Gem.loaded_specs["stripe"] = Gem::Specification.new("stripe", "20.1.0")
      RUBY
    }.freeze
    private_constant :HURTING, :FINE

    def test_it_says_what_would_hurt_and_the_fix_of_each
      status, said = examine("-w", "2", files: HURTING, database: postgresql)

      assert_equal 1, status
      assert_match(/^3 of these would hurt in the environment production\.$/, said)
      assert_match(/config.active_support.isolation_level is :thread.* Remove that line/, said)
      assert_item(/^✗ Few connections in each worker: primary \(5\)/,
                  "Set database_connections in config/fairlead.rb (bin/rails generate fairlead:install does), or raise " \
                  "max_connections in config/database.yml.", said)
      assert_item(/^✗ Code that keeps a database connection/, "with_connection { |connection| … }", said)
      assert_equal <<~PLACES, places("Code that keeps a database connection", said)
        app/models/concerns/counted.rb:5: connection
        app/models/hurting.rb:2: Item.connection
        app/models/hurting.rb:3: Item.lease_connection
        app/models/hurting.rb:7: Item.connection_pool.checkout
        app/models/hurting.rb:12: Item.lease_connection
        app/models/item.rb:3: connection
        app/models/item.rb:5: connection
        app/models/item.rb:10: self.connection
        and 1 more
      PLACES
      refute_includes said, "items.rake"
      assert_item(/^✗ typhoeus 1\.4\.1/, "Fairlead.offload", said)
      assert_item(/^– Thread\.current/, "CurrentAttributes. A client that is kept there is rebuilt", said)
      assert_equal <<~PLACES, places("Thread.current[…] as state", said)
        app/models/hurting.rb:6: Thread.current[:user] = 1
        app/models/item.rb:7: Thread.current[:items] ||= []
        app/models/item.rb:7: Thread.current[:count] += 1
      PLACES
      assert_item(/^– Code that changes what all requests of a worker share/, "`chdir:`", said)
      assert_equal <<~PLACES, places("Code that changes what all requests", said)
        app/models/hurting.rb:9: Dir.chdir("tmp") { `ls` }
        app/models/hurting.rb:10: Bundler.with_unbundled_env { ENV["A"] = "b" }
        app/models/hurting.rb:10: ENV["A"] = "b"
      PLACES
      assert_item(/^– request_store 1\.7\.0: its store belongs to a fiber/, "ActiveSupport::CurrentAttributes", said)
      assert_item(/^– bunny 3\.5\.0: a channel serves one request at a time/, "in a pool", said)
      assert_item(/^– stripe 20\.1\.0: its connections stay open between requests/, "from the request itself", said)
    end

    def test_it_counts_the_connections_of_all_workers
      files = { **FINE, "config/database.yml" => "production:\n  adapter: postgresql\n  max_connections: #{allowed}\n" }
      _, said = examine("-w", "2", files:, database: postgresql)

      assert_item(/^✗ postgresql at \S+ allows #{allowed} connections; 2 workers may open #{2 * allowed}/,
                  "`database_connections #{(allowed * 0.9).floor}`", said)

      assert_equal [0, "Nothing would hurt in the environment production.\n\n"],
                   examine("-w", "2", "--database-connections", "90", files:, database: postgresql)
    end

    def test_few_connections_to_sqlite_are_good_to_know
      files = { **FINE, "config/database.yml" => "production:\n  adapter: sqlite3\n  database: test.sqlite3\n" }
      status, said = examine("-w", "2", "--database-connections", "90", files:)

      assert_equal 0, status
      assert_item(/^– Few connections in each worker: primary \(5\)/, "Raise max_connections in config/database.yml.", said)
    end

    %w[mysql2 trilogy].each do |adapter|
      define_method("test_it_asks_mariadb_through_#{adapter}_how_many_connections_it_allows") do
        allowed = Trilogy.new(**Databases.mariadb_settings).query("SELECT @@max_connections").first.first
        _, said = in_mariadb(adapter, "--database-connections", allowed.to_s)

        assert_item(/^✗ #{adapter} at \S+ allows #{allowed} connections; all workers together open up to #{allowed} /,
                    "`database_connections #{(allowed * 0.9).floor}`", said)
        refute_includes said, "prepared statements are on"
      end
    end

    def test_prepared_statements_of_mysql2_would_hurt
      status, said = in_mariadb("mysql2", "--database-connections", "90", settings: "  prepared_statements: true\n")

      assert_equal 1, status
      assert_item(/^✗ primary: prepared statements are on/, "`adapter: trilogy`", said)
    end

    def test_prepared_statements_that_are_off_hurt_nobody
      _, said = in_mariadb("mysql2", "--database-connections", "90", settings: "  prepared_statements: \"false\"\n")

      refute_includes said, "prepared statements are on"
    end

    private

    # @return [Array(Integer, String)] exit status and output.
    def examine(*flags, **)
      server = rails_app(:fairlead, **)
      said = server.run(File.join(ROOT, "exe/fairlead"), "doctor", "-e", "production", *flags)
      [$?.exitstatus, said]
    end

    # @param settings [String] of database.yml.
    def in_mariadb(adapter, *flags, settings: "")
      files = { **FINE, "config/database.yml" => "production:\n  adapter: #{adapter}\n#{settings}" }
      examine("-w", "2", *flags, files:, env: { "DATABASE_URL" => Databases.url(adapter) })
    end

    def assert_item(pattern, remedy, said)
      assert_match pattern, said
      item = said[said.index(pattern)..].lines.take_while.with_index { |line, index| index.zero? || line.start_with?("    ") }.join

      assert_match(/^    → .*#{Regexp.escape(remedy)}/, item)
    end

    # @return [String] where, of what is said in one item.
    def places(item, said)
      said[/^. #{Regexp.escape(item)}.*\n((?:    (?!→).*\n)*)/, 1].gsub(/^ {4}/, "")
    end

    def allowed = @allowed ||= PG.connect(postgresql) { |connection| connection.exec("SHOW max_connections").getvalue(0, 0).to_i }
  end
end
