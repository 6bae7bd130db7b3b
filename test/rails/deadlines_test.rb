# frozen_string_literal: true

require_relative "rails_app"

module Fairlead
  # A Rails action that takes longer than it may.
  class RailsDeadlinesTest < RailsTest
    needs :database

    CONTROLLER = <<~RUBY
      class TimesController < ActionController::Base
        def transaction
          Item.transaction do
            Item.create!(name: "never committed")
            Fairlead.request_timeout = 0.8
            Item.connection.select_value("SELECT pg_sleep(20)")
          end
          head :ok
        end

        def query
          Fairlead.request_timeout = 0.8
          Item.connection.select_value("SELECT pg_sleep(20)")
        rescue => error
          File.write("rescued", error.class.name)
          head :ok
        ensure
          File.write("ensured", "")
        end

        def live
          Fairlead.request_timeout = 0.8
          response.headers["Content-Type"] = "text/event-stream"
          response.stream.write("a")
          sleep 1.5
          response.stream.write("z")
        ensure
          response.stream.close
        end

        def count = render(json: [Item.where(name: "never committed").count])
      end
      class StreamsController < TimesController
        include ActionController::Live
      end
    RUBY

    FILES = {
      "app/controllers/times_controller.rb" => CONTROLLER[/.*?^end\n/m],
      "app/controllers/streams_controller.rb" => CONTROLLER[/^class Streams.*/m],
      "config/initializers/log.rb" => "$stdout.sync = true",
      "config/database.yml" => "production:\n  adapter: sqlite3\n  pool: 1\n",
      "config/routes.rb" => <<~RUBY
        Rails.application.routes.draw do
          %w[transaction query count].each { |action| get action, to: "times#\#{action}" }
          get :live, to: "streams#live"
        end
      RUBY
    }.freeze

    def server
      shared_rails(:fairlead, "--workers", "1", "--request-timeout", "60", database: postgresql, files: FILES)
    end

    def setup
      super
      count(server)
    end

    def test_a_transaction_is_rolled_back_and_its_connection_can_be_used_at_once
      assert_equal [0], count(server)
      took = duration { assert_equal "504", server.get("/transaction").code }
      assert_operator took, :<, 10
      took = duration { assert_equal [0], count(server) }
      assert_operator took, :<, 10
      eventually("it is logged") { server.log.match?(/Fairlead::RequestTimeout.*times_controller.rb:\d+:in .*transaction/m) }
    end

    def test_an_action_can_rescue_it_as_what_it_is
      assert_equal "504", server.get("/query").code
      eventually("it has cleaned up") { File.exist?(server.path("ensured")) }
      assert_equal "Fairlead::RequestTimeout", File.read(server.path("rescued"))
      took = duration { assert_equal [0], count(server) }
      assert_operator took, :<, 10
    end

    def test_an_event_stream_may_be_silent
      # A busy machine may need longer for its first byte than a request may take.
      body = eventually("it begins in time") { server.get("/live").then { |answer| answer.body if answer.code == "200" } }
      assert_equal "az", body
    end

    private

    def count(server) = JSON.parse(server.get("/count").body)
  end
end
