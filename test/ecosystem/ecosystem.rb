# frozen_string_literal: true

require_relative "../bundle"
require_relative "../helper"

module Fairlead
  # The base of the tests with gems that only they need: a bundle of its own, in this folder, installed beside the
  # repository's own (bin/setup --tests does it).
  class EcosystemTest < Test
    GEMS = Bundle.new("test/ecosystem/Gemfile")
    BUNDLE = GEMS.environment

    def setup
      super
      skip GEMS.missing if GEMS.missing
    end

    # (see Test#with_server)
    def with_server(app, *flags, env: {}, **options, &)
      super(app, *flags, env: BUNDLE.merge(env), **options, &)
    end
  end
end
