# frozen_string_literal: true

# Addresses and the sockets that listen there, including inherited ones.
# Called by supervision, hot_restart and integrations.
# Calls ipc.
module Fairlead
  autoload :Listener, "fairlead/listening/listener"
end
