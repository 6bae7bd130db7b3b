# frozen_string_literal: true

require_relative "../helper"
require "active_support"
require "active_support/isolated_execution_state"
require "active_support/dependencies"
require "fairlead/capybara"
require "rack/lint"

module Fairlead
  class CapybaraTest < Test
    def setup
      super
      Capybara.server = :fairlead
    end

    def teardown
      Capybara.server = :default
      super
    end

    def test_an_app_is_served_in_a_thread_beside_the_test
      app = ->(_) { [200, { "content-type" => "text/plain" }, ["#{Process.pid} #{Thread.current == Thread.main}"]] }
      server = Capybara::Server.new(Rack::Lint.new(app)).boot

      assert_equal "#{Process.pid} false", Net::HTTP.get(URI("#{server.base_url}/"))
    end

    def test_the_app_is_isolated_by_fiber
      app = lambda do |env|
        ::ActiveSupport::IsolatedExecutionState[:number] = env["QUERY_STRING"]
        sleep 0.05
        [200, { "content-type" => "text/plain" }, [::ActiveSupport::IsolatedExecutionState[:number]]]
      end
      server = Capybara::Server.new(Rack::Lint.new(app)).boot
      answers = (1..20).map { |n| Thread.new { Net::HTTP.get(URI("#{server.base_url}/?#{n}")) } }.map(&:value)

      assert_equal (1..20).map(&:to_s), answers
    end
  end
end
