# frozen_string_literal: true

# Addresses and the sockets that listen there, including inherited ones.
# Called by supervision, hot_restart, integrations and observer.
# Calls acme and ipc.
module Fairlead
  autoload :Certificates, "fairlead/listening/certificates"
  autoload :Listener, "fairlead/listening/listener"
  autoload :LocalhostCertificate, "fairlead/listening/localhost_certificate"
end
