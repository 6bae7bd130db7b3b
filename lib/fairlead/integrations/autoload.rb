# frozen_string_literal: true

# What Rails and other libraries need in order to run here; each file is about one library.
# Called by those libraries, and by supervision once the app is loaded.
# Calls serving, fiber_safety and supervision (to start a server from Rackup).
module Fairlead
  autoload :ExconSockets, "fairlead/integrations/excon"
  autoload :Graphql, "fairlead/integrations/graphql"
  autoload :Live, "fairlead/integrations/rails/live"
  autoload :RackTimeout, "fairlead/integrations/rack_timeout"
  autoload :SequelPools, "fairlead/integrations/sequel"
end
