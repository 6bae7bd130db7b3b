# frozen_string_literal: true

require_relative "rails_app"

module Fairlead
  # A stall in a Rails app: instrumentation knows controller and action, and in development the log of its request too.
  class RailsStallsTest < RailsTest
    FILES = {
      "config/initializers/stalls.rb" => <<~RUBY,
        $LOAD_PATH.unshift #{File.join(ROOT, "examples/cwork/lib").inspect}
        require "cwork"
        ActiveSupport::Notifications.subscribe("stall.fairlead") do |name, started, finished, id, payload|
          File.write("events", payload.to_json + "\\n", mode: "a")
        end
      RUBY

      "app/controllers/slow_controller.rb" => <<~RUBY
        class SlowController < ActionController::Base
          def show
            Cwork.without_gvl(0.3)
            head :ok
          end
        end
      RUBY
    }.freeze

    def test_the_event_names_controller_action_and_request
      server = rails(:fairlead, files: FILES)
      server.get("/slow?a=b", "X-Request-Id" => "some-request-1")
      event = event_of(server)

      assert_equal ["GET", "/slow", "GET /slow", "slow#show", "some-request-1", "blocked"],
                   event.values_at("method", "path", "route", "action", "request_id", "kind")
      assert_match(%r{\Aapp/controllers/slow_controller\.rb:3 in }, event["at"])
      assert_nil event["gem"]
      assert_operator event["seconds"], :>=, 0.25
      assert_equal true, event["standby"]
    end

    def test_in_development_it_is_in_the_log_of_its_request
      files = FILES.merge("config/initializers/tags.rb" => "Rails.application.config.log_tags = [:request_id]")
      server = rails(:fairlead, "-w", "1", environment: "development", files:)
      server.get("/slow") # the first request loads much
      server.get("/slow", "X-Request-Id" => "some-request-2")
      log = nil
      line = eventually("it is in the log") do
        log = File.readlines(server.path("log/development.log"))
        log.find { |text| text.include?("GET /slow (slow#show, request some-request-2) stalled for ") }
      end

      assert line.start_with?("[some-request-2] "), line
      assert_match(%r{app/controllers/slow_controller\.rb:3:in }, log[log.index(line) + 1])
    end

    private

    def event_of(server)
      eventually("it is told") { File.exist?(server.path("events")) && File.read(server.path("events")).end_with?("\n") }
      JSON.parse(File.readlines(server.path("events")).last)
    end
  end
end
