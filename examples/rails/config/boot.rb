# frozen_string_literal: true

# One bundle for the repository: the gem, its tests and this app.
ENV["BUNDLE_GEMFILE"] ||= File.expand_path("../../../Gemfile", __dir__)

require "bundler/setup"
