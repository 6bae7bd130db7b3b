# frozen_string_literal: true

require_relative "cable_client"
require_relative "rails_app"

module Fairlead
  # WebSockets in a Rails app, with a real client: Action Cable, which hijacks its connection and reads it in threads of
  # its own, and async-websocket, which upgrades it and stays in the request's fiber.
  class RailsWebSocketTest < RailsTest
    include CableClient
    needs :database

    FILES = {
      "config/application.rb" => <<~RUBY,
        require_relative "boot"
        require "rails"
        require "active_record/railtie"
        require "action_controller/railtie"
        require "action_cable/engine"
        Bundler.require(*Rails.groups)
        require "async/websocket/adapters/rack"

        class TestApp < Rails::Application
          config.load_defaults 8.1
          config.hosts.clear
          config.action_cable.disable_request_forgery_protection = true
        end
      RUBY
      "config/cable.yml" => "production:\n  adapter: async\n",
      "config/routes.rb" => <<~'RUBY',
        Rails.application.routes.draw do
          mount ActionCable.server => "/cable"
          get "/broadcast", to: ->(env) { ActionCable.server.broadcast("news", env["QUERY_STRING"]); [200, {}, ["sent"]] }
          get "/connections", to: ->(_) { [200, {}, [Fairlead.stats[:workers].sum { |worker| worker[:connections] }.to_s]] }
          get "/connected", to: ->(_) { [200, {}, [Fairlead.stats[:workers].count { |worker| worker[:connections] >= 2 }.to_s]] }
          get "/streams", to: ->(_) { [200, {}, [Fairlead.stats[:workers].sum { |worker| worker[:streams] }.to_s]] }
          get "/echo", to: ->(env) {
            Async::WebSocket::Adapters::Rack.open(env) do |connection|
              while (message = connection.read)
                connection.send_text("#{message.to_str} of #{Item.find(1).name}")
                connection.flush
              end
            end or [400, {}, ["no websocket"]]
          }
        end
      RUBY
      "app/channels/application_cable/connection.rb" => <<~RUBY,
        module ApplicationCable
          class Connection < ActionCable::Connection::Base
            identified_by :number

            def connect
              self.number = request.params[:number]
              reject_unauthorized_connection if number == "nobody"
            end
          end
        end
      RUBY
      "app/channels/application_cable/channel.rb" => <<~RUBY,
        module ApplicationCable
          class Channel < ActionCable::Channel::Base
          end
        end
      RUBY
      "app/channels/news_channel.rb" => <<~'RUBY'
        class NewsChannel < ApplicationCable::Channel
          def subscribed = stream_from("news")

          def speak(data) = transmit("#{connection.number} said #{data["text"]} to #{Item.find(1).name}")
        end
      RUBY
    }.freeze
    LONG = "hello " * 5000 # more than a record of TLS holds
    private_constant :LONG

    def setup
      super
      @server = rails(:fairlead, "--workers", "1", files: FILES) unless name.include?("workers")
    end

    def test_postgresql_takes_a_message_to_the_clients_of_all_workers
      files = FILES.merge("config/cable.yml" => "production:\n  adapter: postgresql\n")
      @server = rails(:fairlead, "--workers", "2", files:, database: postgresql)

      3.times { |n| assert_all_hear("/broadcast?ahoy#{n}", "ahoy#{n}") }
    end

    # The core carries the bytes of each: the app gets one end of a socket pair.
    def test_action_cable_over_tls_with_two_workers
      files = FILES.merge("config/cable.yml" => "production:\n  adapter: postgresql\n", **SpeaksHTTPS::FILES)
      @server = rails(:fairlead, "--workers", "2", *SpeaksHTTPS::FLAGS, files:, database: postgresql)
      Sync do |task|
        clients = []
        eventually("each worker has at least two connections") do
          clients << subscribe("/cable?number=#{clients.size}")
          clients.size >= 10 && @server.get("/connected").body.to_i >= 2
        end
        clients.each_with_index do |client, number|
          say(client, command: "message", identifier: CHANNEL, data: JSON.generate(action: "speak", text: LONG))
          assert_equal "#{number} said #{LONG} to item 1", heard(client)["message"]
        end
        @server.get("/broadcast?all")
        clients.map { |client| task.async { assert_equal "all", heard(client)["message"] } }.each(&:wait)
        assert_predicate @server.stop, :success?
        clients.each { |client| assert ended?(client) }
      end
    end

    def test_action_cable_confirms_transmits_and_broadcasts
      Sync do |task|
        clients = Array.new(20) { |number| subscribe("/cable?number=#{number}") }
        clients.each_with_index do |client, number|
          say(client, command: "message", identifier: CHANNEL, data: JSON.generate(action: "speak", text: "hello"))
          assert_equal "#{number} said hello to item 1", heard(client)["message"]
        end
        assert_equal "sent", @server.get("/broadcast?all").body
        clients.map { |client| task.async { assert_equal "all", heard(client)["message"] } }.each(&:wait)
        eventually("only this request's own is counted") { @server.get("/connections").body == "1" }
        clients.each(&:close)
      end
    end

    def test_the_server_ends_though_cables_are_open
      Sync do
        client = subscribe("/cable?number=1")
        assert_predicate @server.stop, :success?
        client.close
      rescue EOFError, Errno::ECONNRESET, Errno::EPIPE, Protocol::WebSocket::ClosedError
        nil
      end
    end

    def test_async_websocket_upgrades_and_waits_in_its_fiber
      Sync do |task|
        clients = Array.new(20) { connect("/echo") }
        eventually("all are open") { @server.get("/streams").body == "20" }
        clients.each_with_index.map do |client, number|
          task.async do
            3.times do |turn|
              client.send_text("#{number} #{turn}")
              client.flush
              assert_equal "#{number} #{turn} of item 1", client.read.to_str
            end
            client.close
          end
        end.each(&:wait)
        eventually("all have ended") { @server.get("/streams").body == "0" }
      end
    end

    def test_who_asks_for_no_websocket_or_is_not_let_in_gets_none
      assert_equal "400", @server.get("/echo").code
      assert_equal "404", @server.get("/cable").code
      Sync do
        refused = connect("/cable?number=nobody")
        assert_equal %w[disconnect unauthorized], heard(refused).values_at("type", "reason")
        refused.close
      end
      refute_match(/EPIPE|ECONNRESET|IOError/, @server.log)
    end

    private

    # Whether the server has ended the connection; what it has said before is read.
    def ended?(client)
      Async::Task.current.with_timeout(30) { nil while client.read }
      true
    rescue EOFError, Errno::ECONNRESET, Errno::EPIPE, Protocol::WebSocket::ClosedError
      true
    end
  end
end
