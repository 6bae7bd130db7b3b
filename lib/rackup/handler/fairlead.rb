# frozen_string_literal: true

require "rackup/handler"
require "rackup/server"
require "fairlead/integrations/rackup_handler"

module Rackup
  module Handler
    # (see Fairlead::Handler)
    module Fairlead
      extend ::Fairlead::Handler
    end

    register :fairlead, Fairlead
  end
end
