# frozen_string_literal: true

require "open3"
require_relative "../helper"

module Fairlead
  # ActiveRecord's own tests of its connection pool, with what Fairlead changes in it. They run where Rails' source has
  # been fetched to tmp/rails, which git ignores:
  #
  #   git clone --depth 1 --branch v8.1.3.1 https://github.com/rails/rails tmp/rails
  #   BUNDLE_GEMFILE=test/rails_own/Gemfile bundle install
  class RailsOwnPoolTest < Test
    SOURCE = File.join(ROOT, "tmp/rails/activerecord")
    GEMFILE = File.join(ROOT, "test/rails_own/Gemfile")
    SCRIPT = <<~RUBY
      require "active_record"
      require "fairlead/parts"
      require "fairlead/active_record/seam"
      Fairlead::ActiveRecord::Seam.install
      ARGV.each { |file| require File.expand_path(file) }
    RUBY
    private_constant :SOURCE, :GEMFILE, :SCRIPT

    %w[connection_pool reaper pooled_connections query_cache asynchronous_queries].each do |name|
      define_method(:"test_#{name}") { assert_passes("test/cases/#{name}_test.rb") }
    end

    private

    def assert_passes(file)
      skip "Rails' source is not in tmp/rails: see #{__FILE__}" unless File.exist?(File.join(SOURCE, file))
      skip "the gems of test/rails_own/Gemfile are not installed" unless run_in_bundle("bundle", "check").last.success?

      output, status = run_in_bundle("bundle", "exec", RbConfig.ruby, "-W0", "-I", "test", "-I", ".", "-I",
                                     File.join(ROOT, "lib"), "-e", SCRIPT, file, chdir: SOURCE)

      assert_predicate status, :success?, output
      assert_match(/ 0 failures, 0 errors/, output)
    end

    def run_in_bundle(*command, **)
      variables = { "BUNDLE_GEMFILE" => GEMFILE, "ARCONN" => "sqlite3_mem", "RUBYOPT" => nil, "RUBYLIB" => nil }
      Bundler.with_unbundled_env { Open3.capture2e(variables, *command, **) }
    end
  end
end
