# frozen_string_literal: true

require "pty"
require_relative "rails_app"

module Fairlead
  # In development a debugger's prompt gets the terminal, and others are served meanwhile.
  # Covers stalls/prompt.rb
  class RailsPromptTest < RailsTest
    def test_a_request_that_stops_at_a_prompt_is_talked_to_in_the_terminal
      PTY.open do |terminal, inner|
        server = rails(:rails, environment: "development", files: APP, env: { "TERM" => "dumb" },
                                spawn_options: { in: inner, out: inner })
        answer = Thread.new { server.get("/prompted").body }
        transcript = read_until(terminal, /irb\(.*> /)

        assert_includes transcript, "secret = 42"
        assert_equal 1, server.json("/reload")["version"]

        terminal.write("secret += 1\nexit\n")
        assert_equal "43", answer.value
      end
    end

    # The debug gem's prompt stops all other threads as long as it is there.
    def test_a_prompt_of_the_debug_gem_is_no_stall
      PTY.open do |terminal, inner|
        server = rails(:rails, environment: "development", files: APP,
                       env: { "TERM" => "dumb", "NO_COLOR" => "1", "DEBUG_GEM" => debug_gem, "RUBY_DEBUG_NO_RELINE" => "1" },
                       spawn_options: { in: inner, out: inner })
        2.times do
          answer = Thread.new { server.get("/debugged").body }
          read_until(terminal, /\(rdbg\)/)
          others = Array.new(3) { Thread.new { server.get("/reload").code } }
          sleep 3
          terminal.write("continue\n")
          assert_equal ["42", ["200"] * 3], [answer.value, others.map(&:value)]
        end
        # On a busy machine requests may stall of themselves, for less than a prompt was there.
        assert_empty server.json("/lanes").select { |route| route["longest"] > 2.5 }
        server.get("/blocked")
        eventually("a stall after it is told") { told(server).any? { |line| line.include?("/blocked") } }
        assert_empty told(server).select { |line| line[/stalled for ([\d.]+) s/, 1].to_f > 2.5 }
      end
    end

    APP = {
      "config/routes.rb" => <<~RUBY,
        Rails.application.routes.draw do
          get :prompted, to: "prompted#show"
          get :debugged, to: "prompted#debugged"
          get :lanes, to: "prompted#lanes"
          get :reload, to: "probes#reload"
          get :blocked, to: "prompted#blocked"
        end
      RUBY
      "app/controllers/prompted_controller.rb" => <<~RUBY
        $LOAD_PATH.unshift(*ENV["DEBUG_GEM"].split(":")) and require "debug/prelude" if ENV["DEBUG_GEM"]

        class PromptedController < ActionController::Base
          def debugged
            secret = 41
            debugger
            secret += 1
            render plain: secret
          end

          def blocked = Fiber.blocking { sleep 0.6 }.then { head(:ok) }

          def lanes = render(json: Fairlead.page.routes.reject { |route| route[:lane] == :none })

          def show
            secret = 42
            binding.irb
            render plain: secret
          end
        end
      RUBY
    }.freeze
    private_constant :APP

    private

    # @return [Array<String>] what the logs say of stalls, which are told one after the other.
    def told(server) = [server.log, File.read(server.path("log/development.log"))].join("\n").lines.grep(/ stalled for /)

    # It comes with Ruby, but is not in this bundle.
    def debug_gem
      folder = [Gem.default_dir, "#{RbConfig::CONFIG["rubylibprefix"]}/gems/#{RbConfig::CONFIG["ruby_version"]}"]
               .flat_map { |place| Dir[File.join(place, "gems/debug-*")] }.max or flunk "Ruby's debug gem is not installed"
      [File.join(folder, "lib"), *Dir[File.join(folder, "../../extensions/*/*", File.basename(folder))]].join(":")
    end

    def read_until(terminal, pattern)
      transcript = +""
      until transcript.match?(pattern)
        flunk "no #{pattern.inspect} in 30 s, but:\n#{transcript}" unless terminal.wait_readable(30)
        transcript << terminal.readpartial(4096)
      end
      transcript
    end
  end
end
