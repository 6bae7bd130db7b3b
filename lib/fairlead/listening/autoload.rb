# frozen_string_literal: true

# Addresses and the sockets that listen there, also those that another process has opened.
# Called by supervision and hot_restart.
# Calls ipc, for the sockets that it passes on.
module Fairlead
  autoload :Listener, "fairlead/listening/listener"
end
