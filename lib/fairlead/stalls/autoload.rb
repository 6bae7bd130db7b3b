# frozen_string_literal: true

# Requests that block or compute for long: how they are noticed, what causes them, and what helps.
# Called by serving, which runs a reporter in each worker, and by control, which aggregates the reports.
# Calls only the core's binding.
module Fairlead
  autoload :RailsRoutes, "fairlead/stalls/rails_routes"
  autoload :Stall, "fairlead/stalls/stall"
end
