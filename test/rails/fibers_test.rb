# frozen_string_literal: true

require_relative "rails_app"
require_relative "plain_fibers"

module Fairlead
  class RailsFibersTest < RailsTest
    include PlainFibers

    private

    def fibers = shared_rails(:fairlead, "--workers", "1", files: APP, database: postgresql)
  end
end
