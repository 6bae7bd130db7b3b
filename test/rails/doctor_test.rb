# frozen_string_literal: true

require "pg"
require_relative "rails_app"

module Fairlead
  # `fairlead doctor` in a Rails app.
  class RailsDoctorTest < RailsTest
    HURTING = {
      "app/models/hurting.rb" => <<~RUBY,
        class Hurting
          def self.pinned = Item.connection.select_value("SELECT 1")
          def self.also_pinned = Item.lease_connection
          def self.fine = Item.with_connection { |connection| connection.select_value("SELECT 1") }
          def self.no_model = Faraday.connection
          def self.local = Thread.current[:user] = 1
        end
      RUBY
      "config/initializers/isolation.rb" => "Rails.application.config.active_support.isolation_level = :thread\n",
      "config/database.yml" => "production:\n  adapter: postgresql\n  max_connections: 5\n",
      "config/initializers/gems.rb" => <<~RUBY
        Gem.loaded_specs["rack-timeout"] = Gem::Specification.new("rack-timeout", "0.7.0")
      RUBY
    }.freeze
    private_constant :HURTING

    def test_it_says_what_would_hurt_and_the_fix_of_each
      status, said = examine("-w", "2", files: HURTING, database: postgresql)

      assert_equal 1, status
      assert_match(/^4 of these would hurt in the environment production\.$/, said)
      assert_item(/^✗ config.active_support.isolation_level is :thread/, "Remove that line", said)
      assert_item(/^✗ Few connections in each worker: primary \(5\)/, "Set database_connections", said)
      assert_item(/^✗ Code that keeps a database connection/, "with_connection { |connection| … }", said)
      assert_includes said, "    app/models/hurting.rb:2: Item.connection\n    app/models/hurting.rb:3: Item.lease_connection\n    →"
      assert_item(/^✗ rack-timeout 0\.7\.0/, "Remove it", said)
      assert_item(/^– Thread\.current/, "CurrentAttributes", said)
      assert_item(/^– ActionController::Live/, "with_connection", said)
      assert_includes said, "    app/controllers/lives_controller.rb:2: include ActionController::Live\n"
      assert_match(/^✓ pg 1\.\d+\.\d+ lets others run while it waits\.$/, said)
    end

    def test_it_counts_the_connections_of_all_workers
      database = { "config/database.yml" => "production:\n  adapter: postgresql\n  max_connections: #{allowed}\n" }
      _, said = examine("-w", "2", files: database, database: postgresql)

      assert_item(/^✗ postgresql at \S+ allows #{allowed} connections; 2 workers may open #{2 * allowed}/,
                  "`database_connections #{(allowed * 0.9).floor}`", said)

      _, said = examine("-w", "2", "--database-connections", "90", files: database, database: postgresql)

      assert_match(/^✓ postgresql at \S+ allows \d+ connections; all workers together open up to 90/, said)
    end

    private

    # @return [Array(Integer, String)] exit status and output.
    def examine(*flags, **)
      server = RailsServer.new(:fairlead, **)
      (@servers ||= []) << server
      said = server.run(File.join(ROOT, "exe/fairlead"), "doctor", "-e", "production", *flags)
      [$?.exitstatus, said] # rubocop:disable Style/SpecialGlobalVars
    end

    def assert_item(pattern, remedy, said)
      assert_match pattern, said
      item = said[said.index(pattern)..].lines.take_while.with_index { |line, index| index.zero? || line.start_with?("    ") }.join

      assert_match(/^    → .*#{Regexp.escape(remedy)}/, item)
    end

    def allowed = @allowed ||= PG.connect(postgresql) { |connection| connection.exec("SHOW max_connections").getvalue(0, 0).to_i }
  end
end
