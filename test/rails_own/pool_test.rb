# frozen_string_literal: true

require "open3"
require "pg"
require "tmpdir"
require "trilogy"
require "yaml"
require_relative "../drivers/databases"
require_relative "../helper"

module Fairlead
  # ActiveRecord's own tests of its connection pool and its adapters, with what Fairlead changes in both and in the drivers,
  # on each database. They run where Rails' source has been fetched to tmp/rails, which git ignores; of 8.1.4, or of a commit
  # shortly before it:
  #
  #   git clone --filter=blob:none --branch 8-1-stable https://github.com/rails/rails tmp/rails
  #   git -C tmp/rails checkout --detach 2e968549372
  #   BUNDLE_GEMFILE=test/rails_own/Gemfile bundle install
  class RailsOwnPoolTest < Test
    needs :database

    SOURCE = File.join(ROOT, "tmp/rails/activerecord")
    GEMFILE = File.join(ROOT, "test/rails_own/Gemfile")
    # As Rails' tests call them.
    DATABASES = %w[activerecord_unittest activerecord_unittest2].freeze
    DROP = Hash.new("DROP DATABASE IF EXISTS %s").merge("postgresql" => "DROP DATABASE IF EXISTS %s WITH (FORCE)").freeze
    # One expects an error from a connection that the server has closed: such a one is replaced. The other gives Fiber.new an
    # argument, which it does not take where async is loaded.
    OTHERWISE = "/recently-used_but_now-failed_connection_skips_verification|FiberTest#test_checkout_behavior/"
    SCRIPT = <<~RUBY
      require "active_record"
      require "fairlead/parts"
      Fairlead::ActiveRecord::PoolPatch.install
      Fairlead::Drivers.establish
      require File.expand_path(ARGV.shift)
    RUBY
    private_constant :SOURCE, :GEMFILE, :DATABASES, :DROP, :OTHERWISE, :SCRIPT

    define_method(:test_rails_own_tests_pass) { skip "Rails' source is not in tmp/rails: see test/rails_own/pool_test.rb" } unless File.exist?(SOURCE)

    %w[
      connection_pool reaper pooled_connections query_cache asynchronous_queries adapter connection_handling disconnected
    ].each do |name|
      %w[sqlite3_mem postgresql mysql2 trilogy].each do |adapter|
        next unless File.exist?(SOURCE)

        define_method(:"test_#{name}_on_#{adapter}") { assert_passes("test/cases/#{name}_test.rb", adapter) }
      end
    end

    private

    def assert_passes(file, adapter)
      skip "the gems of test/rails_own/Gemfile are not installed" unless run_in_bundle({}, "bundle", "check").last.success?

      with_databases(adapter) do |variables|
        output, status = run_in_bundle(variables, "bundle", "exec", RbConfig.ruby, "-W0", "-I", "test", "-I", ".", "-I",
                                       File.join(ROOT, "lib"), "-e", SCRIPT, file, "--exclude", OTHERWISE, chdir: SOURCE)

        assert_predicate status, :success?, output
        assert_match(/ 0 failures, 0 errors/, output)
      end
    end

    def run_in_bundle(variables, *command, **)
      variables = { "BUNDLE_GEMFILE" => GEMFILE, "RUBYOPT" => nil, "RUBYLIB" => nil }.merge(variables)
      Bundler.with_unbundled_env { Open3.capture2e(variables, *command, **) }
    end

    # @yieldparam variables [Hash{String => String}] that tell Rails' tests where they are.
    def with_databases(adapter)
      return yield({ "ARCONN" => adapter }) if adapter == "sqlite3_mem"

      url = (adapter == "postgresql" ? Databases.postgresql : Databases.mariadb)
      administer(url, adapter, DROP[adapter], "CREATE DATABASE %s")
      Dir.mktmpdir("fairlead-") do |folder|
        file = File.join(folder, "config.yml")
        File.write(file, YAML.dump("connections" => { adapter => settings(url, adapter) }))
        yield({ "ARCONN" => adapter, "ARCONFIG" => file })
      end
    ensure
      administer(url, adapter, DROP[adapter]) if url
    end

    def settings(url, adapter)
      address = URI(url)
      one = { "host" => address.host, "port" => address.port, "username" => address.user, "password" => address.password }
      one["min_messages"] = "warning" if adapter == "postgresql"
      %w[arunit arunit2 arunit_without_prepared_statements].to_h { |name| [name, one.dup] }
    end

    def administer(url, adapter, *commands)
      client = adapter == "postgresql" ? PG.connect(url) : Trilogy.new(Databases.mariadb_settings)
      ask = adapter == "postgresql" ? client.method(:exec) : client.method(:query)
      ask.call("SET client_min_messages = warning") if adapter == "postgresql"
      DATABASES.product(commands) { |name, command| ask.call(format(command, name)) }
    ensure
      client&.close
    end
  end
end
