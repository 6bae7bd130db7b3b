# frozen_string_literal: true

# Shares out the connections of a database server among the workers, and between old and new code.
# Called by supervision (allocator) and active_record (worker_budget).
# Calls the shared page and ipc.
module Fairlead
  autoload :Budget, "fairlead/connection_budget/allocator"
  autoload :Budgets, "fairlead/connection_budget/connection_budget"
end
