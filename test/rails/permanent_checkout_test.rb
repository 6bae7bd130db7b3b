# frozen_string_literal: true

require_relative "rails_app"

module Fairlead
  # What becomes of `ActiveRecord::Base.connection`, which keeps a connection until the end of the request, where the app
  # has its own mind on that, or the pool is small. RailsTenQueriesTest has what is usual.
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

    def test_the_banner_says_what_limits_a_new_app_and_how_to_lift_it
      few = { "config/database.yml" => "production:\n  adapter: postgresql\n  max_connections: 5\n" }
      server = rails(:fairlead, "--workers", "2", files: APP.merge(few), database: postgresql)

      assert_match(/^  database   primary: up to 5 connections in each worker .*; other requests wait for one\.$/, server.log)
      assert_match(/^  database   To lift that, set database_connections in config.fairlead.rb .*, or raise max_connections in config.database\.yml\.$/,
                   server.log)
    end
  end
end
