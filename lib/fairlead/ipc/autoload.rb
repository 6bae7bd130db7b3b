# frozen_string_literal: true

# How the processes of a server talk: typed messages, sockets that carry descriptors, connections handed over.
# Called by supervision, hot_restart, control, connection_budget and listening.
# Calls no other room.
module Fairlead
  autoload :Channel, "fairlead/ipc/channel"
  autoload :ConnectionHandoff, "fairlead/ipc/connection_handoff"
  autoload :Messages, "fairlead/ipc/messages"
  autoload :PacketSocket, "fairlead/ipc/packet_socket"
end
