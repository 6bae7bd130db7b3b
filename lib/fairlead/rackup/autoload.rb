# frozen_string_literal: true

# Serves for `bin/rails server`, `rackup` and whatever else starts servers through Rackup or Rack 2.
# Called by the handlers in lib/rackup and lib/rack.
# Calls configuration, hot_restart, integrations and supervision.
module Fairlead
  autoload :Rackup, "fairlead/rackup/rackup"
  autoload :RackupHandler, "fairlead/rackup/rackup_handler"
end
