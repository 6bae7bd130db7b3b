# frozen_string_literal: true

# Requests that block or compute for long: how they are noticed, what causes them, and what helps.
# Called by serving (a reporter in each worker), control (which aggregates the reports), integrations (traces) and supervision.
# Calls no other room.
module Fairlead
  autoload :RailsRoutes, "fairlead/stalls/rails_routes"
  autoload :Stall, "fairlead/stalls/stall"
end
