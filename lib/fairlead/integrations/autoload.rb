# frozen_string_literal: true

# What Rails and other libraries need to run in fibers; each file is about one library.
# Called by those libraries, supervision and rackup.
# Calls active_record, configuration, drivers, fiber_safety, listening, pool, serving and stalls.
module Fairlead
  autoload :ExconSockets, "fairlead/integrations/excon_sockets"
  autoload :FastMCPSessions, "fairlead/integrations/fast_mcp_sessions"
  autoload :Graphql, "fairlead/integrations/graphql"
  autoload :Integrations, "fairlead/integrations/integrations"
  autoload :Isolation, "fairlead/integrations/isolation"
  autoload :OpenTelemetryContext, "fairlead/integrations/open_telemetry_context"
  autoload :PoolWaits, "fairlead/integrations/pool_waits"
  autoload :RackTimeout, "fairlead/integrations/rack_timeout"
  autoload :RailsLive, "fairlead/integrations/rails/live"
  autoload :SequelPools, "fairlead/integrations/sequel_pools"
  autoload :ServerSpan, "fairlead/integrations/server_span"
  autoload :TusUploads, "fairlead/integrations/tus_uploads"
end
