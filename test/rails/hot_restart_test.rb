# frozen_string_literal: true

require_relative "rails_app"
require_relative "../restarts"

module Fairlead
  # New code of a Rails app takes over while its old code is in the database.
  class RailsHotRestartTest < RailsTest
    needs :database

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

    # It touches tmp/restart.txt. The server is begun anew in its own place, and connections wait meanwhile.
    { "development" => "0", "production" => "2" }.each do |environment, workers|
      define_method("test_bin_rails_restart_restarts_bin_rails_server_in_#{environment}") do
        server = rails(:rails, environment:, env: { "WEB_CONCURRENCY" => workers }, files: {
          "config/initializers/version.rb" => "VERSION = 1\n",
          "config/routes.rb" => "Rails.application.routes.draw { root to: ->(_) { [200, {}, [VERSION.to_s]] } }\n"
        })
        assert_equal "1", server.get.body
        server.write("config/initializers/version.rb", "VERSION = (")
        server.signal(:USR2)
        eventually("it is told") { server.log.include?("The new code could not be started; the old code continues to serve.\n") }
        assert_equal "1", server.get.body
        server.write("config/initializers/version.rb", "VERSION = 2\n")
        environment == "development" ? server.run("bin/rails", "restart") : server.write("tmp/restart.txt", "")
        eventually("the new code") { server.get.body == "2" } # no connection is refused

        server.wait_for_notification("RELOADING=1")
        server.wait_for_notification("READY=1")
        assert_match(/tmp\/restart.txt has been touched/, server.log)
        server.write("config/initializers/version.rb", "VERSION = 3\n")
        assert_match(/\AThe new code serves /, server.run("-S", "fairlead", "restart"))
        assert_equal "3", server.get.body
        server.write("config/initializers/version.rb", "VERSION = 4\n")
        server.signal(:USR2)
        eventually("newer code") { server.get.body == "4" }
        assert_path_exists server.path("tmp/pids/server.pid") if environment == "development"
        2.times { server.wait_for_notification("READY=1") } # of the command, and of USR2
        assert_hup_restarts_the_workers(server) if environment == "production"
        assert_predicate server.stop, :success?
      end
    end

    private

    def assert_hup_restarts_the_workers(server)
      before = server.worker_pids
      server.restart(:HUP)
      eventually("other workers") { (server.worker_pids & before).empty? }
      assert_equal "4", server.get.body
    end
  end
end
