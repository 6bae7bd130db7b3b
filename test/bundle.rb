# frozen_string_literal: true

require "bundler"
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
        **%w[BUNDLER_SETUP BUNDLER_VERSION BUNDLE_BIN_PATH BUNDLE_LOCKFILE RUBYLIB].to_h { |name| [name, nil] }
      }.freeze
    end

    # @return [String, nil] why they cannot be installed; nil: they are there.
    def missing
      @missing = say("check") && (say("install") || say("check")) unless defined?(@missing)
      "The gems of #{@environment["BUNDLE_GEMFILE"]} cannot be installed:\n#{@missing}" if @missing
    end

    private

    # Outside of the bundle of the tests: a Bundler that is not the lock file's starts that one, in the environment from before
    # this bundle. It would install the gems of another Gemfile.
    #
    # @return [String, nil] what bundler says, if it fails.
    def say(command)
      variables = @environment.slice("BUNDLE_GEMFILE", "BUNDLE_PATH", "BUNDLE_FROZEN")
      said, status = Bundler.with_unbundled_env { Open3.capture2e(variables, "bundle", command, chdir: ROOT) }
      "#{said}bundle #{command}: #{status}" unless status.success?
    end
  end
end
