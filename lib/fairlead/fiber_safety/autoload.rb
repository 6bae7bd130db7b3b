# frozen_string_literal: true

# Keeps the state of requests apart, and keeps a request from breaking its worker, though it runs in a fiber.
# Called by supervision, hot_restart, serving, drivers, active_record and integrations, and by Ruby's own classes, which it extends.
# Calls no other room.
module Fairlead
  autoload :BareThread, "fairlead/fiber_safety/bare_thread"
  autoload :Callbacks, "fairlead/fiber_safety/callbacks"
  autoload :Cleanup, "fairlead/fiber_safety/cleanup"
  autoload :ClosedIO, "fairlead/fiber_safety/closed_io"
  autoload :Containment, "fairlead/fiber_safety/containment"
  autoload :FiberState, "fairlead/fiber_safety/fiber_state"
  autoload :FileLock, "fairlead/fiber_safety/file_lock"
  autoload :ForkGuard, "fairlead/fiber_safety/fork_guard"
  autoload :KeptLocals, "fairlead/fiber_safety/kept_locals"
  autoload :MutexSleep, "fairlead/fiber_safety/mutex_sleep"
  autoload :NameLookup, "fairlead/fiber_safety/name_lookup"
  autoload :ScheduledCall, "fairlead/fiber_safety/scheduled_call"
  autoload :Semaphores, "fairlead/fiber_safety/semaphores"
  autoload :ServingScheduler, "fairlead/fiber_safety/serving_scheduler"
  autoload :SharedFiles, "fairlead/fiber_safety/shared_files"
  autoload :StrayChild, "fairlead/fiber_safety/stray_child"
  autoload :ThreadParent, "fairlead/fiber_safety/thread_parent"
  autoload :ThreadVariables, "fairlead/fiber_safety/thread_variables"
  autoload :Timeouts, "fairlead/fiber_safety/timeouts"
  autoload :Uninterruptible, "fairlead/fiber_safety/uninterruptible"
  autoload :WorkingFolder, "fairlead/fiber_safety/working_folder"
end
