# frozen_string_literal: true

# Calls that block or compute for long: what was noticed, what caused it, and what helps.
# Called by supervision, which starts a reporter in each worker and aggregates in the supervisor.
# Calls the core's binding and ipc.
module Fairlead
  autoload :Stall, "fairlead/stalls/stall"
end
