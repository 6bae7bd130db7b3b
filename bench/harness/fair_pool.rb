# frozen_string_literal: true

require "fileutils"
require "open3"
require "time"
require_relative "results"
require_relative "toolchain"

module Bench
  # The workload without a server: bench/fair_pool with all its pools, on the Ruby that the servers have, and on JRuby
  # where there is a Java. Each part is saved when it has been measured.
  module FairPool
    NAME = "fair-pool"
    TITLE = "Threads and fibers that share five connections: who waits how long (no server; also on JRuby)"
    ROUNDS = 3
    GEMFILE = File.join(Toolchain::ROOT, "bench/pool/Gemfile")
    # Seconds that a round of each part takes, about.
    PARTS = { "threads" => 33, "fibers" => 40, "crowd" => 55, "cost" => 10 }.freeze
    ON_JRUBY = %w[threads cost].freeze
    # What its figures depend on.
    SOURCES = %w[lib/fairlead/pool.rb lib/fairlead/pool bench/pool bench/fair_pool].freeze
    private_constant :ROUNDS, :GEMFILE, :PARTS, :ON_JRUBY, :SOURCES

    module_function

    # @param options [CLI::Options] `only` names parts.
    # @return [Symbol] :good, :faulty, or :stopped where the time is too short.
    def run(toolchain, deadline, options)
      rounds = options.rounds || ROUNDS
      todo = parts(options.only)
      todo.reject! { |result, part| newer_than_sources?(result, part) } if options.continue
      environment = prepare(toolchain) if todo.any?
      good = todo.map do |result, part|
        return :stopped unless deadline.room_for?(PARTS.fetch(part) * rounds)

        arguments = [part, "--rounds", rounds.to_s, *("--save" if options.whole?)]
        next system(program("bin/jruby"), "--bench", *arguments) unless result == NAME

        on_cruby(toolchain, environment, arguments)
      end
      good.all? ? :good : :faulty
    end

    # @return [Array<(String, String)>] the result and the part.
    def parts(only)
      found = PARTS.keys.map { |part| [NAME, part] }
      if system("command -v java >/dev/null")
        found += ON_JRUBY.map { |part| ["#{NAME}-jruby", part] }
      else
        warn "leaving out JRuby: there is no Java here"
      end
      only.is_a?(Array) ? found.select { |_, part| only.include?(part) } : found
    end

    def newer_than_sources?(result, part)
      table = Results.read(result)&.fetch("tables")&.find { |found| found["key"] == part } or return false
      changed, status = Open3.capture2("git", "-C", Toolchain::ROOT, "log", "-1", "--format=%ct", "--", *SOURCES)
      status.success? && Time.iso8601(table["date"]).to_i > changed.to_i
    end

    # Installs the pools that are compared, apart from all else.
    def prepare(toolchain)
      folder = File.join(Toolchain::WORK, "pool")
      FileUtils.mkdir_p(folder)
      FileUtils.cp(GEMFILE, folder)
      variables = toolchain.environment.merge("BUNDLE_GEMFILE" => File.join(folder, "Gemfile"),
        "BUNDLE_PATH" => File.join(folder, "bundle"), "BUNDLE_APP_CONFIG" => folder, "RUBYOPT" => nil)
      toolchain.without_bundler do
        system(variables, *toolchain.ruby, "-S", "bundle", "install", "--quiet", out: $stderr) or
          raise UsageError, "bundle install failed for bench/pool/Gemfile; its message is above"
      end
      variables
    end

    def on_cruby(toolchain, environment, arguments)
      toolchain.without_bundler do
        ruby = toolchain.ruby
        system(environment, *ruby, "-S", "bundle", "exec", *ruby, program("bench/fair_pool"), *arguments)
      end
    end

    def program(path) = File.join(Toolchain::ROOT, path)
  end
end
