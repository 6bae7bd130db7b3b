# frozen_string_literal: true

require_relative "../../bundle"
require_relative "../../helper"

module Fairlead
  # The base of the tests with gems that watch an app, which have a bundle of their own.
  class ApmTest < Test
    GEMS = Bundle.new("test/ecosystem/apm/Gemfile")
    BUNDLE = GEMS.environment

    def setup
      super
      flunk GEMS.missing if GEMS.missing
    end

    # (see Test#with_server)
    def with_server(app, *flags, env: {}, lint: false, **options, &)
      super(app, *flags, env: BUNDLE.merge(env), lint:, **options, &)
    end
  end
end
