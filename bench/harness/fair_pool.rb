# frozen_string_literal: true

require "fileutils"
require_relative "toolchain"

module Bench
  # The workload without a server: bench/fair_pool with all its pools, on the Ruby that the servers have, and on JRuby
  # where there is a Java.
  module FairPool
    NAME = "fair-pool"
    TITLE = "Threads and fibers that share five connections: who waits how long (no server; also on JRuby)"
    REQUESTS = 3_000
    GEMFILE = File.join(Toolchain::ROOT, "bench/pool/Gemfile")
    private_constant :REQUESTS, :GEMFILE

    module_function

    # @return [Boolean] whether all went well.
    def run(toolchain)
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
