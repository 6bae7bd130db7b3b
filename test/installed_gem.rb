# frozen_string_literal: true

require "fileutils"
require "open3"
require "rbconfig"
require "tmpdir"

module Fairlead
  # Both gems as their users get them: built, and installed in a folder where nothing else is but what it depends on.
  class InstalledGem
    ROOT = File.expand_path("..", __dir__)

    # @return [String] its folder: the GEM_HOME.
    attr_reader :home

    # @param beside [Array<String>] further gems of the bundle that are to be there, with their commands.
    def initialize(beside: [])
      @home = Dir.mktmpdir("fairlead-gems-")
      specification = Gem::Specification.load(File.join(ROOT, "fairlead.gemspec"))
      others = beside.map { |name| Gem.loaded_specs[name] || Gem::Specification.find_by_name(name) }
      [*others, *dependencies(specification), *others.flat_map { |one| dependencies(one) }].uniq.each { |one| bring(one) }
      %w[fairlead-pool fairlead].each do |name|
        gem("build", "#{name}.gemspec", "--output", "#{@home}/#{name}.gem")
        gem("install", "--local", "--no-document", "#{@home}/#{name}.gem")
      end
      others.each { |other| other.executables.each { |name| write_command(other.name, name) } }
    end

    # @return [Hash{String => String, nil}] the environment of a process that finds these gems alone.
    def environment
      { "GEM_HOME" => @home, "GEM_PATH" => @home, "PATH" => "#{@home}/bin:#{ENV["PATH"]}",
        **["RUBYOPT", "RUBYLIB", *ENV.keys.grep(/\ABUNDLER?_/)].to_h { |name| [name, nil] } }
    end

    # @return [String] the path of an installed command.
    def command(name) = File.join(@home, "bin", name)

    def remove = FileUtils.remove_entry(@home)

    private

    # @return [Array<Gem::Specification>] what it needs while it serves, and what that needs.
    def dependencies(specification, found = [])
      specification.runtime_dependencies.each do |dependency|
        one = dependency.to_spec
        next if found.include?(one) || one.name == "fairlead-pool" # built here, too

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
        File.symlink(path, target) if File.exist?(path) && !File.exist?(target)
      end
    end

    # As RubyGems writes it for an installed gem.
    def write_command(gem, name)
      File.write(command(name), "#!#{Gem.ruby}\nrequire \"rubygems\"\nload Gem.activate_bin_path(#{gem.dump}, #{name.dump}, \">= 0.a\")\n")
      File.chmod(0o755, command(name))
    end

    def gem(*arguments)
      said, status = Open3.capture2e(environment, RbConfig.ruby, "-S", "gem", *arguments, chdir: ROOT)
      raise said unless status.success?
    end
  end
end
