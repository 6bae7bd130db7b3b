# frozen_string_literal: true

# Addresses, and the sockets that listen there; another process may have opened them.
# Called by supervision, hot_restart and integrations (Capybara).
# Calls ipc (Messages.json).
module Fairlead
  autoload :Listener, "fairlead/listening/listener"
end
