# frozen_string_literal: true

module Fairlead
  # Makes the libraries of an app ready for fibers.
  module Integrations
    # Call it once the app is loaded, in the process that serves, before {Server#run}. May be called again.
    def self.establish
      [Isolation, Drivers, RackTimeout, Graphql, ExconSockets, FastMCPSessions, OpenTelemetryContext, ServerSpan, TusUploads, PoolWaits,
       Callbacks].each(&:establish)
    end

    # Tries what keeps requests apart.
    #
    # @return [Object] what the block returns, which runs in a fiber with a request's own state.
    def self.in_another_request
      Fiber.new do
        FiberOwner.own_state
        yield
      end.resume
    end
  end
end
