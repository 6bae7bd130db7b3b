# frozen_string_literal: true

require_relative "rails_app"
require_relative "../restarts"

module Fairlead
  # New code of a Rails app takes over while its old code is in the database.
  class RailsHotRestartTest < RailsTest
    CONTROLLER = <<~RUBY
      class VersionsController < ActionController::Base
        def show
          Item.with_connection { |connection| connection.select_value("SELECT pg_sleep(0.02)") }
          render plain: "%d"
        end
      end
    RUBY

    def test_no_request_fails_and_the_new_code_is_there
      server = rails(:fairlead, "--workers", "2", "--database-connections", "8", database: postgresql, files: {
        "app/controllers/versions_controller.rb" => format(CONTROLLER, 1),
        "config/routes.rb" => "Rails.application.routes.draw { root to: \"versions#show\"; get :wait, to: \"versions#show\" }\n"
      })
      run = Restarts.new(server, rate: 60, seconds: 5, restarts: 2, clients: 12).run do
        server.write("app/controllers/versions_controller.rb", format(CONTROLLER, 2))
        server.restart(:USR2)
      end

      assert_empty run.failures
      eventually("the new code") { server.get("/").body == "2" }
      eventually("the end of the old code") { server.descendant_pids.size == 3 }
    end
  end
end
