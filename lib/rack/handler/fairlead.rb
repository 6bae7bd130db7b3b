# frozen_string_literal: true

require "rack/handler"
require "rack/server"
require "fairlead/rackup/rackup_handler"

module Rack
  # Of Rack 2. Later it is Rackup's.
  module Handler
    # (see Fairlead::RackupHandler)
    module Fairlead
      extend ::Fairlead::RackupHandler
    end

    register :fairlead, Fairlead
  end
end
