# frozen_string_literal: true

require "bundler"
require "digest"
require "fileutils"
require "open3"
require_relative "workload"

module Bench
  # What all servers share: the Ruby with YJIT, and the bundle of peers, both outside the project's own.
  class Toolchain
    ROOT = File.expand_path("../..", __dir__)
    # Git ignores it.
    WORK = File.join(ROOT, "tmp/bench")
    GEMFILE = File.join(ROOT, "bench/Gemfile")
    PRELUDE = File.join(ROOT, "bench/harness/prelude.rb")
    private_constant :GEMFILE, :PRELUDE

    # @param ruby [String, nil] the path of a Ruby with YJIT; nil looks for one.
    # @param build [Boolean] whether one may be built where there is none.
    # @raise [UsageError] when there is none.
    def initialize(ruby: nil, build: false)
      @ruby = ruby ? demand_yjit(ruby) : find_ruby(build)
    end

    # @return [Array<String>] the command that all servers' commands start with.
    def ruby = [@ruby, "--yjit"]

    # @return [String] the Ruby's own description of itself.
    def description = @description ||= capture(*ruby, "-v")

    def environment
      {
        "BUNDLE_GEMFILE" => GEMFILE, "BUNDLE_PATH" => File.join(WORK, "bundle"), "BUNDLE_APP_CONFIG" => WORK,
        "BUNDLE_SILENCE_ROOT_WARNING" => "1", "BUNDLE_LOCKFILE" => nil, "GEM_HOME" => nil, "GEM_PATH" => nil, "RUBYLIB" => nil,
        "PATH" => "#{File.dirname(@ruby)}:#{ENV.fetch("PATH")}",
        "RUBYOPT" => "-r#{PRELUDE}", "RUBY_YJIT_ENABLE" => "1",
        "RACK_ENV" => "production", "RAILS_ENV" => "production",
        "PORT" => nil, "WEB_CONCURRENCY" => nil, "RAILS_MAX_THREADS" => nil
      }
    end

    # Installs load tools, databases and what gems are compiled with, where they are missing: all that tests need too.
    def self.set_up
      Bundler.with_unbundled_env { system(File.join(ROOT, "bin/setup"), "--tests", out: $stderr) } or
        raise UsageError, "bin/setup --tests failed; its message is above"
    end

    # Installs the load tool where there is none, and the peers, the first time and after a change.
    def install
      Toolchain.set_up unless %w[wrk cc].all? { |name| program?(name) }
      without_bundler do
        settings = environment.merge("RUBYOPT" => nil)
        return if system(settings, *ruby, "-S", "bundle", "check", out: File::NULL, err: File::NULL)

        Toolchain.set_up
        warn "Installing the peers' gems (bench/Gemfile)"
        system(settings, *ruby, "-S", "bundle", "install", "--quiet", out: $stderr) or
          raise UsageError, "bundle install failed for bench/Gemfile; its message is above"
      end
    end

    # @return [Hash{String => String}] every gem of the bundle and its version.
    def gems
      lockfile = Bundler::LockfileParser.new(File.read("#{GEMFILE}.lock"))
      lockfile.specs.to_h { |spec| [spec.name, spec.version.to_s] }.sort.to_h
    end

    # Runs a block without what `bundle exec` has put into this process's environment.
    def without_bundler(&) = Bundler.with_unbundled_env(&)

    # @return [String] the output.
    def capture(*command, variables: {}, **options)
      output, status = without_bundler { Open3.capture2e(environment.merge(variables), *command, **options) }
      raise UsageError, "#{command.join(" ")} failed:\n#{output}" unless status.success?

      output.strip
    end

    private

    def program?(name)
      ENV.fetch("PATH").split(":").any? { |folder| File.executable?(File.join(folder, name)) }
    end

    def yjit?(ruby)
      output, = Open3.capture2e({ "RUBYOPT" => nil }, ruby, "--yjit", "-e", "print RubyVM::YJIT.enabled?")
      output == "true"
    rescue SystemCallError
      false
    end

    def demand_yjit(ruby)
      return ruby if yjit?(ruby)

      raise UsageError, "#{ruby} has no YJIT, and figures without say little; leave out --ruby to look for one"
    end

    def find_ruby(build)
      return RbConfig.ruby if yjit?(RbConfig.ruby)

      script = File.join(ROOT, "bench/ruby-yjit")
      path, status = Open3.capture2(script, "--find", err: File::NULL)
      return path.strip if status.success?
      unless build
        raise UsageError, "this Ruby (#{RUBY_DESCRIPTION}) has no YJIT. With --build-ruby one is built from " \
          "Debian's source package (some minutes); with --ruby PATH another one is taken"
      end

      path, status = Open3.capture2(script)
      raise UsageError, "bench/ruby-yjit failed; its message is above" unless status.success?

      path.strip
    end
  end
end
