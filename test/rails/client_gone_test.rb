# frozen_string_literal: true

require_relative "../drivers/databases"
require_relative "rails_app"

module Fairlead
  # A Rails action that waits for the database when its client goes, where `cancel_abandoned` is set.
  class RailsClientGoneTest < RailsTest
    include Databases
    needs :database

    ADAPTERS = %w[postgresql mysql2 trilogy].freeze

    DATABASES = ADAPTERS.map { |adapter| "  #{adapter}:\n    url: <%= ENV.fetch(\"#{adapter.upcase}\") %>\n    max_connections: 1\n" }
    MODELS = ADAPTERS.to_h do |adapter|
      ["app/models/#{adapter}_record.rb", <<~RUBY]
        class #{adapter.capitalize}Record < ActiveRecord::Base
          self.abstract_class = true
          connects_to database: { writing: :#{adapter} }
        end
      RUBY
    end
    FILES = {
      "config/database.yml" => "production:\n  primary:\n    adapter: sqlite3\n    database: test.sqlite3\n#{DATABASES.join}",
      "config/routes.rb" => <<~RUBY,
        Rails.application.routes.draw do
          get "naps/:where", to: "naps#show"
          get ":adapter", to: "sleeps#show"
        end
      RUBY
      "config/initializers/log.rb" => <<~'RUBY',
        $stdout.sync = true
        Rails.logger.level = :info
        Subscriber = Class.new { def report(_, context:, **) = warn("reported: #{context[:where]}") }
        Rails.error.subscribe(Subscriber.new)
      RUBY
      "app/controllers/naps_controller.rb" => <<~RUBY,
        class NapsController < ActionController::Base
          def show
            Rails.error.set_context(where: params[:where])
            params[:where] == "view" ? render(inline: "<% controller.nap %>") : nap
          end

          def nap
            File.write("napping", "")
            sleep(20)
          end
        end
      RUBY
      "app/controllers/sleeps_controller.rb" => <<~'RUBY',
        class SleepsController < ActionController::Base
          def show
            adapter = params[:adapter]
            sleep = adapter == "postgresql" ? "pg_sleep" : "SLEEP"
            "#{adapter}_record".camelize.constantize.with_connection do |connection|
              connection.execute("SELECT #{sleep}(#{Integer(params[:seconds])})")
            end
            head :ok
          rescue => error
            warn "#{adapter}: #{error.class}"
            raise
          end
        end
      RUBY
      **MODELS
    }.freeze
    private_constant :ADAPTERS, :DATABASES, :MODELS, :FILES

    ADAPTERS.each do |adapter|
      define_method("test_a_query_of_#{adapter}_ends_with_its_client_and_the_next_has_a_connection") do
        queries = sleepers(adapter, 20)
        seconds_until_abandoned(server, "/#{adapter}?seconds=20", queries)

        assert_equal "200", server.get("/#{adapter}?seconds=0").code
        assert_equal ["#{adapter}: Fairlead::ClientGone"], server.log.scan(/^#{adapter}: .*/).uniq
      end
    end

    { "an action" => "action", "a view" => "view" }.each do |what, where|
      define_method("test_#{what.tr(" ", "_")}_that_ends_with_its_client_is_one_line_in_the_log") do
        server.connect do |socket|
          socket.write("GET /naps/#{where} HTTP/1.1\r\nHost: a\r\n\r\n")
          eventually("it waits") { File.exist?(server.path("napping")) && File.delete(server.path("napping")) }
        end
        eventually("it is logged") { server.log.include?("GET /naps/#{where}: the client has gone (cancel_abandoned)") }

        assert_equal "404", server.get("/what/is/not/there").code # what else is logged of it has been by now
        refute_includes server.log, "naps_controller.rb"
        refute_includes server.log, "reported: action" # a view's error is
      end
    end

    private

    def server
      env = ADAPTERS.to_h { |adapter| [adapter.upcase, Databases.url(adapter)] }
      shared_rails(:fairlead, "--workers", "1", "--cancel-abandoned", files: FILES, env:)
    end
  end
end
