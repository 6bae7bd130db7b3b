# frozen_string_literal: true

# The processes of a server: the supervisor, its workers, and the jobs beside them; or one process that serves itself.
# Called by cli and rackup.
# Calls acme, active_record, configuration, connection_budget, control, fiber_safety, hot_restart, integrations, ipc, listening,
# observer, serving and stalls.
module Fairlead
  autoload :ACMEProcess, "fairlead/supervision/acme_process"
  autoload :AppLoader, "fairlead/supervision/app_loader"
  autoload :Banner, "fairlead/supervision/banner"
  autoload :BootThreads, "fairlead/supervision/boot_threads"
  autoload :ExtraWorkers, "fairlead/supervision/extra_workers"
  autoload :Foreground, "fairlead/supervision/foreground"
  autoload :ObserverProcess, "fairlead/supervision/observer_process"
  autoload :Preparation, "fairlead/supervision/preparation"
  autoload :RespawnPolicy, "fairlead/supervision/respawn_policy"
  autoload :SideProcess, "fairlead/supervision/side_process"
  autoload :SolidQueueProcess, "fairlead/supervision/solid_queue_process"
  autoload :Supervision, "fairlead/supervision/supervision"
  autoload :Supervisor, "fairlead/supervision/supervisor"
  autoload :Watchdog, "fairlead/supervision/watchdog"
  autoload :Worker, "fairlead/supervision/worker"
  autoload :WorkerProcesses, "fairlead/supervision/worker_processes"
  autoload :WorkerRecycler, "fairlead/supervision/worker_recycler"
  autoload :WorkerTable, "fairlead/supervision/worker_table"
end
