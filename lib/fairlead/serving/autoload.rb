# frozen_string_literal: true

# The way of a request within one worker: from the core's queue through the app and back to its client.
# Called by supervision and integrations, which run a Server, and drivers (Offload).
# Calls configuration, fiber_safety and stalls.
module Fairlead
  autoload :AccessLog, "fairlead/serving/access_log"
  autoload :Compression, "fairlead/serving/compression"
  autoload :ErrorPages, "fairlead/serving/error_pages"
  autoload :Offload, "fairlead/serving/offload"
  autoload :PublicFiles, "fairlead/serving/public_files"
  autoload :RequestDeadlines, "fairlead/serving/request_deadlines"
  autoload :Server, "fairlead/serving/server"
end
