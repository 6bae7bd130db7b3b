# frozen_string_literal: true

# How the processes of one server talk: typed messages, sockets that carry descriptors, connections handed over.
# Called by supervision, hot_restart, serving, control and connection_budget.
# Calls the core's binding alone.
module Fairlead
  autoload :Channel, "fairlead/ipc/channel"
  autoload :ConnectionHandoff, "fairlead/ipc/connection_handoff"
  autoload :Messages, "fairlead/ipc/messages"
  autoload :PacketSocket, "fairlead/ipc/packet_socket"
end
