# frozen_string_literal: true

# The first process of a server: it starts new code, which takes over from the old, holds the pid file, and talks to the service manager.
# Called by cli, rackup and supervision.
# Calls fiber_safety, ipc and listening.
module Fairlead
  autoload :FiberStacks, "fairlead/hot_restart/fiber_stacks"
  autoload :InitProcess, "fairlead/hot_restart/init_process"
  autoload :ParentLink, "fairlead/hot_restart/parent_link"
  autoload :PidFile, "fairlead/hot_restart/pid_file"
  autoload :Rehearsal, "fairlead/hot_restart/rehearsal"
  autoload :RestartFile, "fairlead/hot_restart/restart_file"
  autoload :ServiceManager, "fairlead/hot_restart/service_manager"
  autoload :StartCommand, "fairlead/hot_restart/start_command"
end
