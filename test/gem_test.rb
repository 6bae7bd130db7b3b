# frozen_string_literal: true

require_relative "helper"
require_relative "installed_gem"
require "fairlead/pool/version"

module Fairlead
  # The gem as its users get it: built, installed where nothing else is but what it depends on, and serving.
  class GemTest < Test
    # The command of an installed gem, as `fairlead` in a shell.
    class Installed < ServerProcess
      private

      def command = [RbConfig.ruby, *@ruby_flags, File.join(@env.fetch("GEM_HOME"), "bin/fairlead")]
    end

    def setup
      super
      @gem = nil
    end

    def teardown
      super
      @gem&.remove
    end

    def test_it_can_be_installed_and_serves
      @gem = InstalledGem.new
      app = "Fairlead::Pool; run ->(_) { [200, {}, $LOADED_FEATURES.grep(/fairlead/).map { |path| \"\#{path}\\n\" }] }"
      server = of_this_test(Installed.new(app, env: @gem.environment))
      loaded = server.start.wait_until_ready.get.body.lines(chomp: true)

      assert(loaded.any? { |path| path.end_with?("/fairlead/fairlead.#{RbConfig::CONFIG["DLEXT"]}") })
      assert(loaded.any? { |path| path.end_with?("/fairlead-pool-#{VERSION}/lib/fairlead/pool.rb") })
      assert_empty loaded.reject { |path| path.start_with?(File.realpath(@gem.home)) }
    end

    def test_all_that_git_keeps_of_the_library_and_the_guides_is_packed
      kept = IO.popen(%w[git ls-files lib ext exe guides], chdir: ROOT, &:read).lines(chomp: true)
      skip "no checkout of git" if kept.empty?

      assert_empty kept - files("fairlead") - files("fairlead-pool")
    end

    # The pool is a gem of its own, in another folder.
    def test_a_file_requires_by_its_path_only_files_of_its_own_gem
      %w[fairlead fairlead-pool].each do |gem|
        own = files(gem).grep(/\Alib.*\.rb\z/)
        wanted = own.flat_map do |file|
          File.read(File.join(ROOT, file)).scan(/^\s*require_relative "([^"#]+)"/).map { |path,| File.expand_path("#{path}.rb", "/#{File.dirname(file)}")[1..] }
        end

        assert_empty wanted - own
      end
    end

    def test_both_gems_have_one_version
      assert_equal VERSION, POOL_VERSION
    end

    # Bundler evaluates both specifications in the app's own process.
    def test_reading_the_specifications_leaves_the_pool_to_be_loaded
      code = 'p [Gem::Specification.load("fairlead.gemspec"), Fairlead.const_defined?(:Pool, false)].last'

      assert_equal "false\n", IO.popen([RbConfig.ruby, "-e", code], chdir: ROOT, &:read)
    end

    def test_the_two_gems_pack_no_file_twice
      assert_equal ["LICENSE"], files("fairlead") & files("fairlead-pool")
    end

    private

    def files(gem) = Gem::Specification.load(File.join(ROOT, "#{gem}.gemspec")).files
  end
end
