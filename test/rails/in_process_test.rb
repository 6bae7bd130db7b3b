# frozen_string_literal: true

require_relative "rails_app"

module Fairlead
  # An app's own tests, which serve it in their process: what a test has in its transaction, the app sees.
  class RailsInProcessTest < RailsTest
    needs :database

    TEST = <<~RUBY
      require_relative "../config/environment"
      require "rails/test_help"
      require "net/http"
      require "fairlead/integrations/capybara"
      Capybara.server = :fairlead

      class ServedTest < ActiveSupport::TestCase
        2.times do |n|
          test "the app sees the test's transaction \#{n}" do
            assert_equal 10, Item.count
            item = Item.create!(name: "of the test")
            server = Capybara::Server.new(Rails.application).boot
            url = "\#{server.base_url}/query?number=\#{item.id - 1}"
            answers = Array.new(20) { Thread.new { JSON.parse(Net::HTTP.get(URI(url)))["name"] } }.map(&:value)

            assert_equal ["of the test"], answers.uniq
          end
        end
      end
    RUBY

    def test_on_sqlite
      assert_passes
    end

    def test_on_postgresql
      assert_passes(database: postgresql)
    end

    private

    def assert_passes(**options)
      files = {
        "test/served_test.rb" => TEST,
        "config/initializers/tests.rb" => "Rails.application.config.active_record.maintain_test_schema = false",
        # The last item is asked for by its id.
        "app/controllers/probes_controller.rb" => <<~RUBY
          class ProbesController < ActionController::Base
            def query
              Item.connection.select_value("SELECT 1")
              # An enumerator's fiber, within a lock that the test has put around its connection.
              render json: Item.transaction { Item.where(id: 1 + params[:number].to_i).find_each.next }
            end
          end
        RUBY
      }
      server = rails_app(:rails, environment: "test", files:, **options)
      written = server.run("test/served_test.rb")

      assert_match(/2 runs, 4 assertions, 0 failures, 0 errors/, written)
    end
  end
end
