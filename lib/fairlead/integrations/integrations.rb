# frozen_string_literal: true

module Fairlead
  # Makes the libraries of an app ready for fibers.
  module Integrations
    # Call it once the app is loaded, in the process that serves, before {Server#run}. May be called again.
    def self.establish
      [Isolation, Drivers, RackTimeout, Graphql, ExconSockets, FastMCPSessions, OpenTelemetryContext, ServerSpan, PoolWaits]
        .each(&:establish)
    end
  end
end
