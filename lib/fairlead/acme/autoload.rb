# frozen_string_literal: true

# Certificates from an authority that speaks ACME (RFC 8555): the folder where they are kept, their orders, and the answers to challenges.
# Called by listening and supervision.
# Calls no other room.
module Fairlead
  autoload :ACMEChallenges, "fairlead/acme/acme_challenges"
  autoload :ACMEFolder, "fairlead/acme/acme_folder"
  autoload :ACMEOrder, "fairlead/acme/acme_order"
  autoload :ACMERenewal, "fairlead/acme/acme_renewal"
end
