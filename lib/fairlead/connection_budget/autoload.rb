# frozen_string_literal: true

# Divides the connections of a database server among the workers, and between old and new code.
# Called by supervision.
# Calls ipc.
module Fairlead
  autoload :ConnectionBudget, "fairlead/connection_budget/connection_budget"
end
