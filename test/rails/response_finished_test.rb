# frozen_string_literal: true

require_relative "rails_app"

module Fairlead
  # What a controller registers for the end of its response.
  class RailsResponseFinishedTest < RailsTest
    FILES = {
      "config/routes.rb" => "Rails.application.routes.draw { get :finished, to: \"ends#finished\" }\n",
      "app/controllers/ends_controller.rb" => <<~'RUBY'
        class EndsController < ActionController::Base
          def finished
            Current.number = 7
            env = request.env
            env["rack.response_finished"] << ->(_, status, _, _) { say "first: #{status}" } << proc { say "second" }
            env["rack.response_finished"] << ->(env, *) { say "third: #{env["PATH_INFO"]}" }
            env["rack.after_reply"] << -> { say "after" } << proc { |argument| say "after again: #{argument.inspect}" }
            head :ok
          end

          private

          def say(what) = warn("#{what}, number #{Current.number.inspect}, #{Rails.application.executor.active?}")
        end
      RUBY
    }.freeze

    def test_callbacks_of_a_controller_run_before_the_executor_completes
      server = rails(:fairlead, "--workers", "1", files: FILES)
      assert_equal "200", server.get("/finished").code
      said = eventually("the last one has run") { server.log.lines.grep(/, number/).then { |lines| lines if lines.size == 5 } }

      assert_equal ["after, number 7, true", "after again: nil, number 7, true", "third: /finished, number 7, true",
                    "second, number 7, true", "first: 200, number 7, true"], said.map(&:chomp)
    end
  end
end
