# frozen_string_literal: true

# New code takes over from a server that runs: the small init process and the generations of supervisors that it starts.
# Called by cli and supervision.
# Calls listening and ipc.
module Fairlead
  autoload :HotRestart, "fairlead/hot_restart/hot_restart"
  autoload :InitProcess, "fairlead/hot_restart/init_process"
  autoload :ParentLink, "fairlead/hot_restart/parent_link"
  autoload :Rehearsal, "fairlead/hot_restart/rehearsal"
  autoload :RestartFile, "fairlead/hot_restart/restart_file"
  autoload :StartCommand, "fairlead/hot_restart/start_command"
end
