# frozen_string_literal: true

require "fileutils"
require "open3"
require "time"
require_relative "progress"
require_relative "results"
require_relative "toolchain"

module Bench
  # The workload without a server: bench/fair_pool with all its pools, on the Ruby that the servers have, and on JRuby
  # where there is a Java or one can be installed. Each part is saved when it has been measured.
  class FairPool
    NAME = "fair-pool"
    TITLE = "Threads and fibers that share five connections: who waits how long (no server; also on JRuby)"
    ROUNDS = 3
    GEMFILE = File.join(Toolchain::ROOT, "bench/pool/Gemfile")
    # Seconds that a round of each part takes, about.
    PARTS = { "threads" => 40, "fibers" => 47, "crowd" => 64, "cost" => 12 }.freeze
    ON_JRUBY = %w[threads cost].freeze
    # What its figures depend on.
    SOURCES = %w[lib/fairlead/pool.rb lib/fairlead/pool lib/fairlead/active_record bench/pool bench/fair_pool].freeze
    private_constant :ROUNDS, :GEMFILE, :PARTS, :ON_JRUBY, :SOURCES

    # @param options [Options] `only` names parts.
    # @param deadline [Deadline] no part is begun that would end after it.
    def initialize(options, toolchain:, deadline:)
      @options = options
      @toolchain = toolchain
      @deadline = deadline
      @rounds = options.rounds || ROUNDS
    end

    def name = NAME

    # @return [Integer] seconds that it takes in all, about.
    def planned = seconds(parts)

    # @return [Boolean] whether nothing is left to do.
    def finished? = parts.empty?

    # @return [Symbol] :good, :faulty, or :stopped where the time is too short.
    def run
      environment = prepare if parts.any?
      good = parts.each_with_index.map do |(result, part), done|
        return :stopped unless @deadline.room_for?(seconds([[result, part]]))

        warn "[#{Progress.clock(seconds(parts.drop(done)))} left] #{result} #{part}"
        arguments = [part, "--rounds", @rounds.to_s, *("--save" if @options.whole?)]
        next system(program("bin/jruby"), "--bench", *arguments) unless result == NAME

        on_cruby(environment, arguments)
      end
      good.all? ? :good : :faulty
    end

    private

    # @return [Array<(String, String)>] the result and the part.
    def parts
      @parts ||= begin
        found = PARTS.keys.map { |part| [NAME, part] } + ON_JRUBY.map { |part| ["#{NAME}-jruby", part] }
        found.select! { |_, part| @options.only.include?(part) } if @options.only.is_a?(Array)
        found.reject! { |result, part| newer_than_sources?(result, part) } if @options.continue
        runnable(found)
      end
    end

    # Without those on JRuby where there is no Java, and none can be installed.
    def runnable(parts)
      on_cruby, on_jruby = parts.partition { |result, _| result == NAME }
      Toolchain.set_up if on_jruby.any? && !java? && debian?
      return parts if on_jruby.empty? || java?

      warn "leaving out JRuby: there is no Java here"
      on_cruby
    end

    def java? = system("command -v java >/dev/null")

    # Where bin/setup installs packages.
    def debian? = File.exist?("/etc/os-release") && File.read("/etc/os-release").match?(/^ID="?debian"?$/)

    def seconds(parts) = parts.sum { |_, part| PARTS.fetch(part) * @rounds }

    def newer_than_sources?(result, part)
      table = Results.read(result)&.fetch("tables")&.find { |found| found["key"] == part } or return false
      changed, status = Open3.capture2("git", "-C", Toolchain::ROOT, "log", "-1", "--format=%ct", "--", *SOURCES)
      status.success? && Time.iso8601(table["date"]).to_i > changed.to_i
    end

    # Installs the pools that are compared, apart from all else.
    def prepare
      folder = File.join(Toolchain::WORK, "pool")
      FileUtils.mkdir_p(folder)
      FileUtils.cp(GEMFILE, folder)
      variables = @toolchain.environment.merge("BUNDLE_GEMFILE" => File.join(folder, "Gemfile"),
        "BUNDLE_PATH" => File.join(folder, "bundle"), "BUNDLE_APP_CONFIG" => folder, "RUBYOPT" => nil)
      @toolchain.without_bundler do
        system(variables, *@toolchain.ruby, "-S", "bundle", "install", "--quiet", out: $stderr) or
          raise UsageError, "bundle install failed for bench/pool/Gemfile; its message is above"
      end
      variables
    end

    def on_cruby(environment, arguments)
      @toolchain.without_bundler do
        ruby = @toolchain.ruby
        system(environment, *ruby, "-S", "bundle", "exec", *ruby, program("bench/fair_pool"), *arguments)
      end
    end

    def program(path) = File.join(Toolchain::ROOT, path)
  end
end
