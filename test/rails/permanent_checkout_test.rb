# frozen_string_literal: true

require "pg"
require_relative "rails_app"

module Fairlead
  # What becomes of `ActiveRecord::Base.connection`, which keeps a connection until the end of the request.
  class RailsPermanentCheckoutTest < RailsTest
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

    def test_it_works_and_the_log_says_where_it_is_called
      server = rails(:fairlead, "--workers", "1", files: APP)

      assert_equal({ "value" => 42 }, server.json("/query"))
      assert_match(/DEPRECATION WARNING: Called deprecated `ActiveRecord::Base.connection`.*#{PLACE}/m, server.log)
    end

    def test_an_app_that_silences_its_deprecations_is_told_once_for_each_place
      server = rails(:fairlead, "--workers", "1", files: APP.merge(SILENT))
      3.times { assert_equal({ "value" => 42 }, server.json("/query")) }

      assert_equal 1, server.log.scan(/ActiveRecord::Base.connection is called in \S*#{PLACE}/).size
      refute_includes server.log, "DEPRECATION"
    end

    def test_what_the_app_has_set_stays
      server = rails(:fairlead, "--workers", "1", files: APP.merge("config/initializers/allowed.rb" => <<~RUBY))
        Rails.application.config.active_record.permanent_connection_checkout = true
      RUBY

      assert_equal({ "value" => 42 }, server.json("/query"))
      refute_match PLACE, server.log
    end

    def test_the_generator_disallows_it_and_sets_a_budget
      server = RailsServer.new(:fairlead, "--workers", "1", files: APP, database: postgresql)
      (@servers ||= []) << server
      written = server.run("bin/rails", "generate", "fairlead:install")

      assert_match(/ActiveRecord::Base.connection raises/, written)
      budget = File.read(server.path("config/fairlead.rb"))[/^database_connections (\d+)$/, 1].to_i
      # Nine tenths of what the database allows.
      assert_equal (allowed * 0.9).floor, budget

      server.start.wait_until_ready

      assert_equal "500", server.get("/query").code
      assert_includes server.get("/query").body, "Either use `with_connection` or `lease_connection`"
      assert_match(/^  database   primary: up to #{budget} connections, of all workers together$/, server.log)
    end

    def test_with_sqlite_the_generator_leaves_the_budget_out
      server = RailsServer.new(:fairlead)
      (@servers ||= []) << server
      server.run("bin/rails", "generate", "fairlead:install")

      assert_match(/^# database_connections \d+$/, File.read(server.path("config/fairlead.rb")))
    end

    def test_the_banner_says_what_limits_a_new_app_and_how_to_lift_it
      few = { "config/database.yml" => "production:\n  adapter: postgresql\n  max_connections: 5\n" }
      server = rails(:fairlead, "--workers", "2", files: APP.merge(few), database: postgresql)

      assert_match(/^  database   primary: up to 5 connections in each worker .*; other requests wait for one\.$/, server.log)
      assert_match(/^  database   To lift that, set database_connections in config.fairlead.rb/, server.log)
    end

    private

    def allowed = PG.connect(postgresql) { |connection| connection.exec("SHOW max_connections").getvalue(0, 0).to_i }
  end
end
