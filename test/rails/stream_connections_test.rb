# frozen_string_literal: true

require_relative "rails_app"
require_relative "../http_client"

module Fairlead
  # A stream holds a database connection while it queries, and none while it waits: many streams share a small pool.
  class StreamConnectionsTest < RailsTest
    include SpeaksHTTP

    STREAMS = 20
    KINDS = %w[live callable enumerable].freeze

    FILES = {
      "config/database.yml" => <<~YAML,
        production:
          adapter: sqlite3
          database: test.sqlite3
          pool: 2
          checkout_timeout: 5
      YAML
      "config/routes.rb" => <<~'RUBY',
        # The same stream in each way in which an app can make one: a query, a wait, and a query.
        class Names
          def initialize(kind) = @kind = kind

          def each
            yield "#{Item.find(1).name}\n"
            sleep 0.01 until File.exist?("go-on-#{@kind}")
            yield "#{Item.where(id: 2).pick(:name)}\n"
          end

          def self.response(kind, body = new(kind))
            Item.count # also before the response begins
            [200, { "content-type" => "text/plain" }, body]
          end
        end

        Rails.application.routes.draw do
          get "stat", to: "probes#stat"
          get "live", to: "names#live"
          get "leased", to: "names#leased"
          get "callable", to: ->(_) { Names.response("callable", ->(stream) { Names.new("callable").each { |name| stream << name }; stream.close }) }
          get "enumerable", to: ->(_) { Names.response("enumerable") }
        end
      RUBY
      "app/controllers/names_controller.rb" => <<~RUBY
        class NamesController < ActionController::Base
          include ActionController::Live

          def live
            Item.count
            Names.new("live").each { |name| response.stream.write(name) }
          ensure
            response.stream.close
          end

          def leased
            response.stream.write("\#{Item.lease_connection.select_value("SELECT 7")}\n")
            sleep 0.01 until File.exist?("go-on-leased")
          ensure
            response.stream.close
          end
        end
      RUBY
    }.freeze

    KINDS.each do |kind|
      define_method(:"test_#{kind}_streams_that_wait_leave_the_pool_to_others") do
        clients = Array.new(STREAMS) { client(to: server).request("GET", "/#{kind}") }
        clients.each { |client| nil until client.line.include?("item 1") }

        assert_equal [2, 0], server.json("/stat").values_at("size", "busy")

        server.write("go-on-#{kind}", "")
        clients.each { |client| assert_includes client.rest_of_chunks, "item 2\n" }
        eventually("all are given back") { server.json("/stat")["busy"].zero? }
      end
    end

    # As for LISTEN, or a temporary table.
    def test_a_stream_that_leases_its_connection_keeps_it_until_it_ends
      leased = client(to: server).request("GET", "/leased")
      nil until leased.line.include?("7")

      assert_equal 1, server.json("/stat")["busy"]

      server.write("go-on-leased", "")
      leased.rest_of_chunks
      eventually("it is given back") { server.json("/stat")["busy"].zero? }
    end

    private

    def server = shared_rails(:fairlead, "--workers", "1", files: FILES)
  end
end
