# frozen_string_literal: true

# What keeps a request's state its own, and keeps what it does from breaking its worker, though it runs in a fiber.
# Called by serving, and by Ruby's own classes, which it extends.
# Calls the core's binding alone.
module Fairlead
  autoload :FiberState, "fairlead/fiber_safety/fiber_state"
  autoload :Isolation, "fairlead/fiber_safety/isolation"
  autoload :KeptLocals, "fairlead/fiber_safety/kept_locals"
  autoload :NameLookup, "fairlead/fiber_safety/name_lookup"
  autoload :ScheduledCall, "fairlead/fiber_safety/scheduled_call"
  autoload :StrayChild, "fairlead/fiber_safety/stray_child"
  autoload :ThreadVariables, "fairlead/fiber_safety/thread_variables"
  autoload :Uninterruptible, "fairlead/fiber_safety/uninterruptible"
  autoload :WorkingFolder, "fairlead/fiber_safety/working_folder"
end
