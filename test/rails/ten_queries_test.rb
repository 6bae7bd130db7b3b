# frozen_string_literal: true

require "pg"
require_relative "rails_app"
require_relative "../burst"

module Fairlead
  # An action that asks the database ten times, as guides/active-record.md has it for a plain Rack app: with the connection
  # that it keeps, and with one for each query.
  class RailsTenQueriesTest < RailsTest
    include Burst
    needs :database

    CONNECTIONS = 5
    FILES = {
      "config/database.yml" => "production:\n  adapter: postgresql\n  max_connections: #{CONNECTIONS}\n  checkout_timeout: 20\n",
      "config/routes.rb" => "Rails.application.routes.draw { get :keeping, to: \"tens#keeping\"; get :giving, to: \"tens#giving\"; " \
                            "get :between, to: \"tens#between\" }\n",
      "app/controllers/tens_controller.rb" => <<~RUBY
        class TensController < ActionController::Base
          def keeping
            10.times { ActiveRecord::Base.connection.execute("SELECT pg_sleep(0.01)") }
            ActiveRecord::Base.connection_handler.clear_active_connections!
            render plain: "ten times"
          end

          def giving
            query = "SELECT pg_sleep(\#{params.fetch(:seconds, "0.01").to_f})"
            10.times { ActiveRecord::Base.with_connection { |connection| connection.execute(query) } }
            render plain: "ten times"
          end

          def between
            Item.find(1)
            sleep 0.5
            render plain: Item.find(2).name
          end
        end
      RUBY
    }.freeze
    private_constant :CONNECTIONS, :FILES

    def test_it_works_as_under_any_server_and_the_log_says_where_a_connection_is_kept
      server = rails(:fairlead, "--workers", "1", "--queue-target", "0", database: postgresql, files: FILES)
      %w[/keeping /giving].each { |path| assert_each_equal "ten times", burst(server, [path] * 30), server, &:body }

      assert_match(/Called deprecated `ActiveRecord::Base.connection`.*tens_controller\.rb:3/m, server.log)
      refute_match(/tens_controller\.rb:9/, server.log)
    end

    def test_with_what_the_generator_writes_it_is_told_what_to_write_instead_and_the_pool_is_no_limit
      server = rails_app(:fairlead, "--workers", "1", database: postgresql, files: FILES)
      server.run("bin/rails", "generate", "fairlead:install")
      written = File.read(server.path("config/fairlead.rb"))
      assert_match(/ActiveRecord::Base\.connection would keep one/, written)
      budget = written[/^database_connections (\d+)$/, 1].to_i
      # Nine tenths of what the database allows.
      assert_equal (allowed * 0.9).floor, budget

      server.start.wait_until_ready
      assert_match(/^  database   primary: up to #{budget} connections, of all workers together$/, server.log)
      assert_equal "500", server.get("/keeping").code
      assert_includes server.get("/keeping").body, "Either use `with_connection` or `lease_connection`"
      # By fives, as the pool's own size would have it, it would be 24 s; all at once 2 s.
      assert_operator seconds_of_burst(server, ["/giving?seconds=0.2"] * 60), :<, 16
    end

    def test_a_request_that_waits_for_something_else_between_two_queries_has_no_connection_meanwhile
      one = FILES.merge("config/database.yml" => FILES["config/database.yml"].sub(/(max_connections:) \d+/, '\1 1'))
      server = rails(:fairlead, "--workers", "1", database: postgresql, files: one)
      # One after the other they would take 25 s.
      assert_operator seconds_of_burst(server, ["/between"] * 50), :<, 15
    end

    private

    def allowed = PG.connect(postgresql) { |connection| connection.exec("SHOW max_connections").getvalue(0, 0).to_i }
  end
end
