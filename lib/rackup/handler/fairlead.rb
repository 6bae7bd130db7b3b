# frozen_string_literal: true

require "rackup/handler"
require "rackup/server"
require "fairlead/rackup/rackup_handler"

module Rackup
  module Handler
    # (see Fairlead::RackupHandler)
    module Fairlead
      extend ::Fairlead::RackupHandler
    end

    register :fairlead, Fairlead
  end
end
