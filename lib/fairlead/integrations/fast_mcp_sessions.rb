# frozen_string_literal: true

require "securerandom"

module Fairlead
  # Names the sessions of fast-mcp, whose messages go to one URL for all clients. Each has to reach the process that has the event
  # stream of its client.
  module FastMCPSessions
    PARAMETER = /\Asession_id=\h{8}-[\h-]{27}(?:&|\z)/
    private_constant :PARAMETER

    # Call it once the app is loaded, in a process that serves. May be called again.
    def self.establish
      return if !defined?(::FastMcp::Transports::RackTransport) || ::FastMcp::Transports::RackTransport.include?(self)

      ::FastMcp::Transports::RackTransport.prepend(self) if Compatibility.fits?(:fast_mcp)
    end

    def call(env)
      if "#{env["SCRIPT_NAME"]}#{env["PATH_INFO"]}" == "#{path_prefix}/#{messages_route}"
        env["QUERY_STRING"] = env["QUERY_STRING"].sub(PARAMETER, "")
      end
      super
    end

    private

    # fast-mcp gives its client a URL with the query of the event stream. The name comes only now: a client that is rejected has no
    # session, and fast-mcp keeps a copy of its server for each query that its filters see.
    def setup_sse_connection(client_id, io, env)
      name_session(env)
      super
    end

    # The first parameter of a name counts, and the client may have one of its own.
    def name_session(env)
      request = ServingFiber.request_of(::Fiber.current) or return

      session = "session_id=#{request.begin_session(::SecureRandom.uuid)}"
      env["QUERY_STRING"] = env["QUERY_STRING"].empty? ? session : "#{session}&#{env["QUERY_STRING"]}"
    end
  end
end
