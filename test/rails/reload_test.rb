# frozen_string_literal: true

require_relative "rails_app"

module Fairlead
  # Development: changed code is loaded anew while requests are in flight.
  # Covers integrations/rails/reload_lock.rb
  class RailsReloadTest < RailsTest
    def test_changed_code_is_served_by_the_next_request
      serve

      assert_equal 1, @server.json("/reload")["version"]
      change_to 2

      assert_equal 2, @server.json("/reload")["version"]
    end

    def test_code_is_not_unloaded_under_a_request_that_waits
      serve
      @server.json("/reload")
      waiting = Array.new(10) { Thread.new { @server.json("/reload?until=go") } }
      eventually("all wait") { in_flight == 10 }
      change_to 2
      after = Thread.new { @server.json("/reload") }
      # It has to wait for those who run the old code, who have to go on meanwhile.
      eventually("the next request waits too") { in_flight == 11 }
      @server.write("go", "")

      assert_equal({ "version" => 2, "steady" => true }, after.value)
      assert_equal([{ "version" => 1, "steady" => true }] * 10, waiting.map(&:value))
    end

    def test_code_that_changes_again_and_again_under_many_requests
      serve
      stop = false
      clients = Array.new(10) do
        Thread.new do
          answers = []
          answers << @server.json("/reload?wait=0.01") until stop
          answers
        end
      end
      (2..6).each do |version|
        change_to version

        assert_equal version, @server.json("/reload")["version"]
      end
      stop = true
      answers = clients.flat_map(&:value)

      assert_each_equal(true, answers, @server) { |answer| answer["steady"] }
    end

    def test_class_bodies_that_wait_are_loaded_once_for_all_who_wait_for_them
      serve "app/models/slow.rb" => <<~MODEL, "app/controllers/slow_controller.rb" => <<~CONTROLLER
        $loads = $loads.to_i + 1
        class Slow
          sleep 0.2
          NUMBER = 1
        end
      MODEL
        class SlowController < ActionController::Base
          def show = render(json: { number: Slow::NUMBER, loads: $loads })
        end
      CONTROLLER
      @server.json("/reload")
      answers = @server.json_at_once(*["/slow"] * 10)

      assert_each_equal({ "number" => 1, "loads" => 1 }, answers, @server)
    end

    private

    def serve(files = {})
      @server = rails(:rails, environment: "development", files:)
      @changed = Time.now - 1000
      change_to 1
    end

    # Rails looks at the time of a file's last change, and at none that is in the future. The file changes all at
    # once: a request may look at any moment.
    def change_to(version)
      path = @server.write("tmp/version.rb", "class Version\n  NUMBER = #{version}\nend\n")
      @changed += 10
      File.utime(@changed, @changed, path)
      File.rename(path, @server.path("app/models/version.rb"))
    end

    # Beside the one that asks.
    def in_flight = @server.json("/in_flight")
  end
end
