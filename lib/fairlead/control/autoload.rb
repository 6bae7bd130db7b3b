# frozen_string_literal: true

# The answers of a running server to `fairlead status`, `stalls` and `restart`, and the socket that they go through.
# Called by cli (the asking side) and supervision (the answering side).
# Calls active_record, ipc and stalls.
module Fairlead
  autoload :ControlServer, "fairlead/control/control_server"
  autoload :ControlSocket, "fairlead/control/control_socket"
  autoload :PoolReports, "fairlead/control/pool_reports"
  autoload :ProcessUsage, "fairlead/control/process_usage"
  autoload :ServerSelection, "fairlead/control/server_selection"
  autoload :SocketNamespace, "fairlead/control/socket_namespace"
  autoload :WorkerStats, "fairlead/control/worker_stats"
end
