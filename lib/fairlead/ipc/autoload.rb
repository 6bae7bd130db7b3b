# frozen_string_literal: true

# How processes of one server speak to each other: typed messages, socket pairs that carry descriptors, connections handed over.
# Called by supervision, hot_restart, serving and control.
# Calls the core's binding alone.
module Fairlead
  autoload :ConnectionHandoff, "fairlead/ipc/connection_handoff"
  autoload :Messages, "fairlead/ipc/messages"
  autoload :PacketSocket, "fairlead/ipc/packet_socket"
end
