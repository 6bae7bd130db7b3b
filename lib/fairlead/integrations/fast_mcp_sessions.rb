# frozen_string_literal: true

require "securerandom"

module Fairlead
  # Names the sessions of fast-mcp, whose messages go to one URL for all clients. Each has to reach the process that has the event
  # stream of its client.
  module FastMCPSessions
    PARAMETER = /(?:\A|&)session_id=\h{8}-[\h-]{27}\z/
    private_constant :PARAMETER

    # Call it once the app is loaded, in a process that serves. May be called again.
    def self.establish
      return if !defined?(::FastMcp::Transports::RackTransport) || ::FastMcp::Transports::RackTransport.include?(self)

      ::FastMcp::Transports::RackTransport.prepend(self) if Compatibility.fits?(:fast_mcp)
    end

    # fast-mcp gives its client a URL with the query of the event stream.
    def call(env)
      case "#{env["SCRIPT_NAME"]}#{env["PATH_INFO"]}"
      when "#{path_prefix}/#{sse_route}" then name_session(env)
      when "#{path_prefix}/#{messages_route}" then env["QUERY_STRING"] = env["QUERY_STRING"].sub(PARAMETER, "")
      end
      super
    end

    private

    def name_session(env)
      request = ServingFiber.request_of(::Fiber.current) or return

      session = "session_id=#{request.begin_session(::SecureRandom.uuid)}"
      env["QUERY_STRING"] = env["QUERY_STRING"].empty? ? session : "#{env["QUERY_STRING"]}&#{session}"
    end
  end
end
