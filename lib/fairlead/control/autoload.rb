# frozen_string_literal: true

# The answers of a running server to `fairlead status`, `stalls` and `restart`, and the socket that they go through.
# Called by cli and observer (the asking side), and supervision (the answering side).
# Calls active_record, ipc and stalls.
module Fairlead
  autoload :ControlServer, "fairlead/control/control_server"
  autoload :ControlSocket, "fairlead/control/control_socket"
  autoload :Crash, "fairlead/control/crash"
  autoload :Findings, "fairlead/control/findings"
  autoload :Histogram, "fairlead/control/histogram"
  autoload :Humanize, "fairlead/control/humanize"
  autoload :MemoryLimit, "fairlead/control/memory_limit"
  autoload :PoolReports, "fairlead/control/pool_reports"
  autoload :ProcessMeter, "fairlead/control/process_meter"
  autoload :ProcessUsage, "fairlead/control/process_usage"
  autoload :RecentTimes, "fairlead/control/recent_times"
  autoload :RequestReports, "fairlead/control/request_reports"
  autoload :ServerSelection, "fairlead/control/server_selection"
  autoload :SocketNamespace, "fairlead/control/socket_namespace"
  autoload :StatusReport, "fairlead/control/status_report"
  autoload :WorkerStats, "fairlead/control/worker_stats"
end
