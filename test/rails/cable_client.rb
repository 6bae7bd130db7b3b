# frozen_string_literal: true

require "async"
require "async/http/endpoint"
require "async/websocket/client"
require "json"
require_relative "../tls_client"

module Fairlead
  # For tests that speak with Action Cable: real clients, in fibers of the test.
  module CableClient
    CHANNEL = JSON.generate(channel: "NewsChannel")

    # At the last address of the server: with TLS, if it has one with.
    def connect(path)
      address = @server.addresses.last
      options = address.start_with?("https:") ? { ssl_context: trusting_context, alpn_protocols: ["http/1.1"] } : {}
      Async::WebSocket::Client.connect(Async::HTTP::Endpoint.parse("#{address.sub("127.0.0.1", "localhost")}#{path}", **options))
    end

    def trusting_context
      OpenSSL::SSL::SSLContext.new.tap { |context| context.set_params(cert_store: SpeaksHTTPS.certificates.store) }
    end

    def subscribe(path = "/cable")
      client = connect(path)
      assert_equal "welcome", heard(client)["type"]
      say(client, command: "subscribe", identifier: CHANNEL)
      assert_equal "confirm_subscription", heard(client)["type"]
      client
    end

    def say(client, **message)
      client.send_text(JSON.generate(message))
      client.flush
    end

    # The next message that is no ping.
    def heard(client)
      Async::Task.current.with_timeout(30) do
        loop do
          message = JSON.parse(client.read.to_str)
          return message unless message["type"] == "ping"
        end
      end
    end

    # Clients of all workers hear what one request broadcasts.
    def assert_all_hear(path, text, count: 20)
      Sync do |task|
        clients = Array.new(count) { subscribe }
        @server.get(path)
        heard = clients.map { |client| task.async { heard(client)["message"] } }

        assert_equal [text], heard.map(&:wait).uniq
        clients.each(&:close)
      end
    end
  end
end
