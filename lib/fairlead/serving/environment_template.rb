# frozen_string_literal: true

require "rack"
require "uri" # Rack::Lint of Rack 2 uses it without requiring it

module Fairlead
  # The part of the Rack environment that all requests of a listener share. The core copies it and fills in the rest. Keys that
  # every request sets are there already, so that the copy does not have to grow.
  module EnvironmentTemplate
    private_constant :FILLED_IN # in the order in which the binding's environment.c counts on them

    # @param listener [Listener]
    # @return [Hash] as it is for `GET` over HTTP/1.1 without a query and a body: what differs is set anew.
    def self.for(listener, errors: $stderr)
      environment = FILLED_IN.to_h { |key| [key, nil] }
      environment.update(
        "REQUEST_METHOD" => "GET", "SERVER_PROTOCOL" => "HTTP/1.1", "SCRIPT_NAME" => "", "QUERY_STRING" => "",
        "SERVER_NAME" => (listener.unix? ? "localhost" : listener.host.to_s).freeze,
        "SERVER_PORT" => (listener.unix? ? 80 : listener.port).to_s.freeze,
        "SERVER_SOFTWARE" => "fairlead/#{VERSION}", "GATEWAY_INTERFACE" => "CGI/1.2",
        "rack.url_scheme" => listener.scheme.to_s.freeze, "rack.errors" => errors, "rack.input" => RequestBody::NONE,
        "rack.hijack?" => true
      )
      environment["HTTPS"] = "on" if listener.https?
      environment["SSL_CLIENT_VERIFY"] = "NONE" if listener.certificates&.clients?
      environment.update(older_keys) if Rack.release < "3"
      environment
    end

    # What Rack 2's specification asks for as well.
    def self.older_keys
      { "rack.version" => [1, 3], "rack.multithread" => true, "rack.multiprocess" => true, "rack.run_once" => false }
    end
    private_class_method :older_keys
  end
end
