# frozen_string_literal: true

# How a running server answers `fairlead status`, `stalls` and `restart`: a socket, and what is said through it.
# Called by cli (the asking side) and supervision (the answering side).
# Calls the shared page, stalls and ipc.
module Fairlead
  autoload :Figures, "fairlead/control/worker_stats"
  autoload :Inquiry, "fairlead/control/control_socket"
  autoload :Status, "fairlead/control/server_state"
end
