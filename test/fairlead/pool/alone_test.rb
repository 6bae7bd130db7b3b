# frozen_string_literal: true

require_relative "helper"
require "open3"
require "rbconfig"

module Fairlead
  # A gem of its own: without the server, its C core, and async.
  class PoolAloneTest < PoolTest
    ROOT = File.expand_path("../../..", __dir__)
    # JRuby out of its jars has no program of its own.
    RUBY = RUBY_ENGINE == "jruby" ? File.join(ROOT, "bin/jruby") : RbConfig.ruby

    def test_requiring_the_pool_loads_the_pool_alone
      output = ruby(<<~RUBY)
        before = $LOADED_FEATURES.dup
        require "fairlead/pool"
        puts Fairlead::Pool.new { 1 }.with { |connection| connection + 1 }
        puts ($LOADED_FEATURES - before).map { |path| path[%r{lib/(fairlead.*)}, 1] || path }
          .grep_v(%r{/timeout\\.rb|^fiber|^monitor})
      RUBY

      value, *features = output.lines(chomp: true)
      assert_equal "2", value
      assert_empty features.grep_v(%r{\Afairlead/(version|pool|pool/\w+)\.rb\z})
    end

    def test_the_gem_has_all_files_of_the_pool_and_no_others
      path = File.join(ROOT, "fairlead-pool.gemspec")
      skip "#{path} is not there" unless File.exist?(path)
      specification = Gem::Specification.load(path)

      assert_equal Pool::VERSION, specification.version.to_s
      assert_empty specification.runtime_dependencies
      assert_empty specification.extensions
      expected = Dir[File.join(ROOT, "lib/fairlead/pool{,/*}.rb")].map { |path| path.delete_prefix("#{ROOT}/") }
      assert_equal [*expected, "lib/fairlead-pool.rb"].sort,
        specification.files.grep(/\Alib/).sort
    end

    def test_requiring_the_gem_s_name_loads_the_pool
      assert_equal "constant\n", ruby('require "fairlead-pool"; puts defined?(Fairlead::Pool)')
    end

    private

    def ruby(script)
      output, status = Open3.capture2e(
        { "RUBYOPT" => nil }, RUBY, "--disable-gems", "-I", File.join(ROOT, "lib"), "-e", script
      )
      assert_predicate status, :success?, output
      output
    end
  end
end
