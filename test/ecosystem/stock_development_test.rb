# frozen_string_literal: true

require_relative "stock_app"

module Fairlead
  # The stock app while it is being worked on: in development, and in its own system tests with a browser.
  class StockDevelopmentTest < StockAppTest
    needs :browser

    SYSTEM_TEST = <<~RUBY
      require "test_helper"
      require "fairlead/integrations/capybara"
      Capybara.server = :fairlead

      # As in bin/rails generate system_test, but for a browser in a container.
      class BoatsTest < ActionDispatch::SystemTestCase
        driven_by :selenium, using: :headless_chrome, screen_size: [1000, 800] do |options|
          options.binary = ENV.fetch("CHROMIUM")
          %w[no-sandbox disable-gpu disable-dev-shm-usage no-first-run disable-background-networking].each { |flag| options.add_argument(flag) }
        end

        test "a boat is made, changed and shown to whoever looks" do
          visit boats_url
          assert_selector "h1", text: "Boats"
          using_session("another browser") do
            visit boats_url
            assert_selector "h1", text: "Boats"
            assert_selector "turbo-cable-stream-source[connected]", visible: :all
          end
          click_on "New boat"
          fill_in "Name", with: "Argo"
          fill_in "Length", with: 28
          click_on "Create Boat"
          assert_text "Boat was successfully created"
          click_on "Edit this boat"
          fill_in "Name", with: "Argo Navis"
          click_on "Update Boat"
          assert_text "Argo Navis"
          assert_equal 28, Boat.find_by!(name: "Argo Navis").length
          # By Action Cable.
          using_session("another browser") { assert_text "Argo Navis" }
        end

        test "another test sees nothing of it" do
          visit boats_url
          assert_no_text "Argo"
        end
      end
    RUBY

    def test_system_tests_with_capybara_and_chromium
      driver, browser = %w[chromedriver chromium].map { |name| `which #{name}`.chomp }
      skip "No chromium and chromedriver: bin/setup --tests installs them" if driver.empty? || browser.empty?
      variables = { "SE_CHROMEDRIVER" => driver, "CHROMIUM" => browser }
      server = of_this_test(StockServer.new(:rails, environment: "test", env: variables, files: {
        "test/system/boats_test.rb" => SYSTEM_TEST, "config/cable.yml" => "test:\n  adapter: async\n",
        "config/initializers/fixtures.rb" => "", "test/fixtures/boats.yml" => "{}"
      }))
      written = server.run("bin/rails", "test:system")

      assert_match(/2 runs, \d+ assertions, 0 failures, 0 errors/, written)
    end

    def test_code_that_changes_while_many_requests_are_served
      server = stock_app(:rails, environment: "development")
      assert_equal "1", server.get("/version").body
      stop = false
      clients = Array.new(10) do |client|
        Thread.new do
          answers = []
          answers << server.get(client.even? ? "/version" : "/boats") until stop
          answers
        end
      end
      (2..4).each { |version| change(server, version) }
      stop = true
      answers = clients.flat_map(&:value)

      assert_each_equal "200", answers, server, &:code

      write_version(server, "no_such_method", 5)
      page = eventually("what is wrong is shown") { server.get("/version").then { |answer| answer if answer.code == "500" } }

      assert_match(/undefined local variable or method .*no_such_method/, page.body)
      change(server, 6)
    end

    private

    def change(server, version)
      write_version(server, version, version)
      eventually("the change is served") { server.get("/version").body == version.to_s }
    end

    # All at once, and newer than before.
    def write_version(server, version, seconds)
      text = "class VersionsController < ApplicationController\n  def show = render(plain: #{version}.to_s)\nend\n"
      path = server.write("tmp/versions_controller.rb", text)
      File.utime(*[Time.now - 100 + seconds] * 2, path)
      File.rename(path, server.path("app/controllers/versions_controller.rb"))
    end
  end
end
