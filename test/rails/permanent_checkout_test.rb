# frozen_string_literal: true

require_relative "rails_app"

module Fairlead
  # What becomes of `ActiveRecord::Base.connection`, which keeps a connection until the end of the request, where the app
  # has its own mind on that, or the pool is small. RailsTenQueriesTest has what is usual.
  # Covers active_record/permanent_checkout_warning.rb
  class RailsPermanentCheckoutTest < RailsTest
    needs :database

    APP = {
      "app/controllers/probes_controller.rb" => <<~RUBY
        class ProbesController < ActionController::Base
          def query
            render json: { value: Item.connection.select_value("SELECT 42") }
          end
        end
      RUBY
    }.freeze
    PLACE = %r{app/controllers/probes_controller\.rb:3}
    SILENT = { "config/initializers/silent.rb" => "Rails.application.deprecators.silenced = true" }.freeze
    private_constant :APP, :PLACE, :SILENT

    def test_an_app_that_silences_its_deprecations_is_told_once_for_each_place
      server = rails(:fairlead, "--workers", "1", files: APP.merge(SILENT))
      3.times { assert_equal({ "value" => 42 }, server.json("/query")) }

      assert_equal 1, server.log.scan(/ActiveRecord::Base.connection is called in \S*#{PLACE}/).size
      refute_includes server.log, "DEPRECATION"
    end

    def test_an_app_whose_deprecations_are_errors_works_as_elsewhere
      raising = { "config/initializers/raising.rb" => "Rails.application.deprecators.behavior = :raise" }

      assert_equal({ "value" => 42 }, rails(:fairlead, "--workers", "1", files: APP.merge(raising)).json("/query"))
    end

    def test_what_the_app_has_set_stays
      server = rails(:fairlead, "--workers", "1", files: APP.merge("config/initializers/allowed.rb" => <<~RUBY))
        Rails.application.config.active_record.permanent_connection_checkout = true
      RUBY

      assert_equal({ "value" => 42 }, server.json("/query"))
      refute_match PLACE, server.log
    end

    def test_the_banner_says_what_limits_a_new_app_and_how_to_lift_it
      few = { "config/database.yml" => "production:\n  adapter: postgresql\n  max_connections: 5\n" }
      server = rails(:fairlead, "--workers", "2", files: APP.merge(few), database: postgresql)

      assert_match(/^  database   primary: up to 5 connections in each worker .*; other requests wait for one\.$/, server.log)
      assert_match(/^  database   To lift that, set database_connections in config.fairlead.rb .*, or raise max_connections in config.database\.yml\.$/,
                   server.log)
    end

    # As `rails new` writes it.
    SQLITE = { "config/database.yml" => <<~YAML }.freeze
      production:
        adapter: sqlite3
        max_connections: <%= ENV.fetch("RAILS_MAX_THREADS") { 5 } %>
        timeout: 5000
        database: test.sqlite3
    YAML
    # Who waits to write may have to wait for longer on a busy machine.
    PATIENT = SQLITE.transform_values { |text| text.sub("5000", "60000") }.freeze
    private_constant :SQLITE, :PATIENT

    def test_the_banner_says_so_of_sqlite_too_which_database_connections_leaves_out
      [[], ["--database-connections", "90"]].each do |flags|
        log = rails(:fairlead, "--workers", "2", *flags, files: APP.merge(SQLITE)).log

        assert_match(/^  database   primary: up to 5 connections in each worker .*; other requests wait for one\.$/, log)
        assert_match(%r{^  database   To lift that, raise max_connections in config/database\.yml\.$}, log)
      end
    end

    # Five of them are in the pool.
    def test_with_few_connections_to_sqlite_who_reads_waits_for_those_who_wait_to_write
      server = rails(:fairlead, "--workers", "1", files: PATIENT.merge("app/controllers/probes_controller.rb" => <<~RUBY))
        class ProbesController < ActionController::Base
          def keep
            Item.transaction do
              Item.create!(name: "new")
              sleep 0.01 until File.exist?("over")
            end
          end

          def stat = render(json: Item.connection_pool.stat)
          def query = render(json: Item.find(1))
        end
      RUBY
      writing = Array.new(5) { Thread.new { server.get("/keep").code } }
      eventually("all connections are in use") { server.json("/stat")["busy"] == 5 }
      reading = Thread.new { server.json("/query") }

      assert(eventually("who reads waits") { server.json("/stat")["waiting"] == 1 })
      server.write("over", "")

      assert_equal [["204"], "item 1"], [writing.map(&:value).uniq, reading.value["name"]]
    end
  end
end
