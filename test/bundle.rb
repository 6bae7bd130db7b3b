# frozen_string_literal: true

require "open3"

module Fairlead
  # The gems of some tests, with a Gemfile of their own. They are installed when a test first needs them.
  class Bundle
    ROOT = File.expand_path("..", __dir__)
    private_constant :ROOT

    # @return [Hash{String => String, nil}] the environment of a process that runs with them.
    attr_reader :environment

    # @param gemfile [String] from the repository's root.
    # @param path [String] where the gems go, likewise. By default they are beside the repository's own.
    def initialize(gemfile, path: "vendor/bundle")
      @environment = {
        "BUNDLE_GEMFILE" => File.join(ROOT, gemfile), "BUNDLE_PATH" => File.join(ROOT, path), "BUNDLE_FROZEN" => "true",
        "RUBYOPT" => "-rbundler/setup",
        **%w[BUNDLER_SETUP BUNDLER_VERSION BUNDLE_BIN_PATH RUBYLIB].to_h { |name| [name, nil] }
      }.freeze
    end

    # @return [String, nil] why they cannot be installed; nil: they are there.
    def missing
      @missing = say("check") && say("install") unless defined?(@missing)
      "The gems of #{@environment["BUNDLE_GEMFILE"]} cannot be installed:\n#{@missing}" if @missing
    end

    private

    # @return [String, nil] what bundler says, if it fails.
    def say(command)
      said, status = Open3.capture2e(@environment.merge("RUBYOPT" => nil), "bundle", command, chdir: ROOT)
      said unless status.success?
    end
  end
end
