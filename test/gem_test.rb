# frozen_string_literal: true

require_relative "helper"
require "open3"

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
      @home = Dir.mktmpdir("fairlead-gems-")
      @env = { "GEM_HOME" => @home, "GEM_PATH" => @home, "RUBYOPT" => nil, "RUBYLIB" => nil, "BUNDLE_GEMFILE" => nil,
               "BUNDLER_SETUP" => nil }
    end

    def teardown
      super
      FileUtils.remove_entry(@home)
    end

    def test_it_can_be_installed_and_serves
      dependencies(specification).each { |dependency| bring(dependency) }
      gem("build", "fairlead.gemspec", "--output", "#{@home}/fairlead.gem")
      gem("install", "--local", "--no-document", "#{@home}/fairlead.gem")
      app = "run ->(_) { [200, {}, $LOADED_FEATURES.grep(/fairlead/).map { |path| \"\#{path}\\n\" }] }"
      server = of_this_test(Installed.new(app, env: @env))
      loaded = server.start.wait_until_ready.get.body.lines(chomp: true)

      assert(loaded.any? { |path| path.end_with?("/fairlead/fairlead.#{RbConfig::CONFIG["DLEXT"]}") })
      assert_empty loaded.reject { |path| path.start_with?(File.realpath(@home)) }
    end

    def test_all_that_git_keeps_of_the_library_and_the_guides_is_packed
      kept = IO.popen(%w[git ls-files lib ext exe guides], chdir: ROOT, &:read).lines(chomp: true)
      skip "no checkout of git" if kept.empty?

      assert_empty kept - specification.files
    end

    private

    def specification = @specification ||= Gem::Specification.load(File.join(ROOT, "fairlead.gemspec"))

    # @return [Array<Gem::Specification>] what it needs while it serves, and what that needs.
    def dependencies(specification, found = [])
      specification.runtime_dependencies.each do |dependency|
        one = dependency.to_spec
        next if found.include?(one)

        dependencies(one, found << one)
      end
      found
    end

    # Links what the bundle has; what comes with Ruby is there.
    def bring(specification)
      return if specification.default_gem?

      [specification.full_gem_path, specification.loaded_from, specification.extension_dir].each do |path|
        target = File.join(@home, path.delete_prefix("#{specification.base_dir}/"))
        FileUtils.mkdir_p(File.dirname(target))
        File.symlink(path, target) if File.exist?(path)
      end
    end

    def gem(*arguments)
      said, status = Open3.capture2e(@env, RbConfig.ruby, "-S", "gem", *arguments, chdir: ROOT)
      assert_predicate status, :success?, said
    end
  end
end
