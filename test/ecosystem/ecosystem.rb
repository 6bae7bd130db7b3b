# frozen_string_literal: true

require "open3"
require_relative "../helper"

module Fairlead
  # The base of the tests with gems that only they need: a bundle of its own, in this folder, installed beside the
  # repository's own (bin/setup --tests does it).
  class EcosystemTest < Test
    BUNDLE = {
      "BUNDLE_GEMFILE" => File.join(__dir__, "Gemfile"), "BUNDLE_PATH" => File.join(ROOT, "vendor/bundle"),
      "BUNDLE_FROZEN" => "true", "RUBYOPT" => "-rbundler/setup",
      **%w[BUNDLER_SETUP BUNDLER_VERSION BUNDLE_BIN_PATH RUBYLIB].to_h { |name| [name, nil] }
    }.freeze

    # @return [String] what bundler says is missing; empty if nothing is.
    def self.missing
      @@missing ||= begin
        output, status = Open3.capture2e(BUNDLE.merge("RUBYOPT" => nil), "bundle", "check")
        status.success? ? "" : output
      end
    end

    def setup
      super
      skip "The gems of test/ecosystem are not installed (bin/setup --tests does it):\n#{self.class.missing}" unless
        EcosystemTest.missing.empty?
    end

    # (see Test#with_server)
    def with_server(app, *flags, env: {}, **options, &)
      super(app, *flags, env: BUNDLE.merge(env), **options, &)
    end
  end
end
