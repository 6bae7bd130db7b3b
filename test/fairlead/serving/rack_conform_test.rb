# frozen_string_literal: true

require "bundler"
require "open3"
require_relative "../../helper"
require_relative "../../../bench/harness/free_port"

module Fairlead
  # The suite by which servers are compared, https://github.com/socketry/rack-conform, where a checkout of it is in
  # tmp/rack-conform:
  #
  #   git clone https://github.com/socketry/rack-conform tmp/rack-conform
  class RackConformTest < Test
    CHECKOUT = File.join(ROOT, "tmp/rack-conform")
    ENVIRONMENT = { "BUNDLE_GEMFILE" => File.join(ROOT, "test/rack_conform/Gemfile"),
                    "BUNDLE_PATH" => File.join(ROOT, "tmp/rack_conform"), "BUNDLE_FROZEN" => "true" }.freeze

    def test_it_passes
      skip "rack-conform is not in tmp/rack-conform: git clone https://github.com/socketry/rack-conform tmp/rack-conform" \
        unless File.exist?(File.join(CHECKOUT, "config.ru"))
      output, status = run_in(CHECKOUT, "bundle", "install")
      skip "the gems of test/rack_conform cannot be installed:\n#{output}" unless status.success?

      port = Bench::FreePort.find
      output, status = run_in(CHECKOUT, "bundle", "exec", "sus", "--verbose",
        "RUBYLIB" => File.join(CHECKOUT, "lib"), "RACK_CONFORM_ENDPOINT" => "http://localhost:#{port}",
        "RACK_CONFORM_SERVER" => "exec bundle exec fairlead --workers 1 --bind http://localhost:#{port}")

      assert_predicate status, :success?, output
      assert_match(/\b([1-9]\d*) passed out of \1 total/, output.gsub(/\e\[[\d;]*m/, ""))
    end

    private

    def run_in(folder, *command, **environment)
      variables = ENVIRONMENT.merge(environment.transform_keys(&:to_s))
      Bundler.with_unbundled_env { Open3.capture2e(variables, *command, chdir: folder) }
    end
  end
end
