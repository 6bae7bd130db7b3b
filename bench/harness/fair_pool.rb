# frozen_string_literal: true

require "fileutils"
require "open3"
require "time"
require_relative "results"
require_relative "toolchain"

module Bench
  # The workload without a server: bench/fair_pool with all its pools, on the Ruby that the servers have, and on JRuby
  # where there is a Java.
  module FairPool
    NAME = "fair-pool"
    TITLE = "Threads and fibers that share five connections: who waits how long (no server; also on JRuby)"
    REQUESTS = 3_000
    GEMFILE = File.join(Toolchain::ROOT, "bench/pool/Gemfile")
    # Seconds that it takes with JRuby, about.
    DURATION = 200
    # What its figures depend on.
    SOURCES = %w[lib/fairlead/pool.rb lib/fairlead/pool bench/pool bench/fair_pool].freeze
    private_constant :REQUESTS, :GEMFILE, :DURATION, :SOURCES

    module_function

    # @param continue [Boolean, nil] whether nothing is done where it was measured after the last change.
    # @return [Symbol] :good, :faulty, or :stopped where the time is too short.
    def run(toolchain, deadline, continue: false)
      return :good if continue && newer_than_sources?
      return :stopped unless deadline.room_for?(DURATION)

      measure(toolchain) ? :good : :faulty
    end

    def newer_than_sources?
      result = Results.read(NAME) or return false
      changed, status = Open3.capture2("git", "-C", Toolchain::ROOT, "log", "-1", "--format=%ct", "--", *SOURCES)
      status.success? && Time.iso8601(result["date"]).to_i > changed.to_i
    end

    def measure(toolchain)
      folder = File.join(Toolchain::WORK, "pool")
      FileUtils.mkdir_p(folder)
      FileUtils.cp(GEMFILE, folder)
      arguments = ["--requests", REQUESTS.to_s, "--save"]
      variables = toolchain.environment.merge("BUNDLE_GEMFILE" => File.join(folder, "Gemfile"),
        "BUNDLE_PATH" => File.join(folder, "bundle"), "BUNDLE_APP_CONFIG" => folder, "RUBYOPT" => nil)
      toolchain.without_bundler do
        bundle = [*toolchain.ruby, "-S", "bundle"]
        system(variables, *bundle, "install", "--quiet", out: $stderr) or
          raise UsageError, "bundle install failed for bench/pool/Gemfile; its message is above"
        [
          system(variables, *bundle, "exec", *toolchain.ruby, program("bench/fair_pool"), *arguments),
          on_jruby(arguments)
        ].all?
      end
    end

    def on_jruby(arguments)
      return system(program("bin/jruby"), "--bench", *arguments) if system("command -v java >/dev/null")

      warn "leaving out JRuby: there is no Java here"
      true
    end

    def program(path) = File.join(Toolchain::ROOT, path)
  end
end
