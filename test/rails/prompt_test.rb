# frozen_string_literal: true

require "pty"
require_relative "rails_app"

module Fairlead
  # In development a debugger's prompt gets the terminal, and others are served meanwhile.
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

    APP = {
      "config/routes.rb" => <<~RUBY,
        Rails.application.routes.draw do
          get :prompted, to: "prompted#show"
          get :reload, to: "probes#reload"
        end
      RUBY
      "app/controllers/prompted_controller.rb" => <<~RUBY
        class PromptedController < ActionController::Base
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
