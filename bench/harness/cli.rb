# frozen_string_literal: true

require "optparse"
require_relative "deadline"
require_relative "fair_pool"
require_relative "fairlead_build"
require_relative "instructions"
require_relative "movements"
require_relative "progress"
require_relative "report"
require_relative "toolchain"
require_relative "workload"
require_relative "workload_run"

Dir[File.expand_path("../servers/*.rb", __dir__)].sort.each { |path| require path }

module Bench
  # bin/bench: from the arguments to the tables.
  class CLI
    Options = Struct.new(:against, :rounds, :seconds, :only, :ruby, :build_ruby, :seed, :save, :list, :ours,
      :patience, :priority, :minutes, :continue, :sweep, :peer_rounds,
      :instructions) do
      # Whether the result is one to publish: every peer and every load, at the full length.
      def whole? = save || [against, rounds, seconds, only, ours, priority].none?
    end
    # For whoever calls in slices: there is more to do.
    UNFINISHED = 3

    def self.run(arguments) = new.run(arguments)

    # @return [Integer] the exit status: 1 where a run of ours failed or had errors, 3 where the time was over first.
    def run(arguments)
      @options = Options.new
      names = parser.parse(arguments)
      return list if @options.list
      return report_all(names.drop(1)) if names.first == "report"
      return compare(names.drop(1)) if names.first == "compare"

      names = price_of(names.drop(1)) if names.first == "price"
      @options.sweep = !names.delete("sweep").nil?
      @options.continue ||= !@options.minutes.nil?
      raise UsageError, "which workload? #{Workload.names.join(", ")}, #{FairPool::NAME}, or all" if names.empty? && !@options.instructions

      workloads = choose_workloads(names)
      raise_descriptor_limit
      raise_priority if @options.priority
      alone { measure(workloads, names & [FairPool::NAME, "all"]) }
    rescue UsageError, OptionParser::ParseError => error
      warn "bin/bench: #{error.message}"
      2
    rescue Interrupt
      warn "bin/bench: interrupted"
      130
    end

    private

    def parser
      OptionParser.new do |options|
        options.banner = "Usage: bin/bench WORKLOAD… [options]\n       bin/bench all | --list\n" \
          "       bin/bench all --minutes 8     the same in slices: each call does as much as fits in, and the next goes on\n" \
          "       bin/bench sweep WORKLOAD…     the settings of peers that were tried (threads), beside each other\n" \
          "       bin/bench report [check]      the page of charts, and the README's tables and picture\n" \
          "       bin/bench price [WORKLOAD…]   what the ladder costs where nothing stalls\n" \
          "       bin/bench compare BEFORE AFTER    what moved between two results, beyond their noise\n\n"
        options.on("--against LIST", Array, "only these peers (puma,falcon; with a setting: puma:60), or none") do |list|
          @options.against = list
        end
        options.on("--rounds N", Integer, "rounds, each of which measures every server (5; a sweep: 3)") do |n|
          @options.rounds = n
        end
        options.on("--peer-rounds N", Integer, "in how many of them the peers take part (all)") do |n|
          @options.peer_rounds = n
        end
        options.on("--seconds N", Integer, "how long each load is measured") { |n| @options.seconds = n }
        options.on("--only LIST", Array, "only these loads (c32,c256)") { |list| @options.only = list }
        options.on("--ours LIST", Array, "what to compare with the peers, the reference first: fairlead,",
          "fairlead:REVISION (a git revision), or none") { |list| @options.ours = list - ["none"] }
        options.on("--ruby PATH", "a Ruby with YJIT (else one is looked for)") { |path| @options.ruby = path }
        options.on("--build-ruby", "build one if there is none") { @options.build_ruby = true }
        options.on("--seed N", Integer, "repeat the order of an earlier run") { |n| @options.seed = n }
        options.on("--patience N", Integer, "repeat a measurement up to N times while others disturb",
          "it (the quietest counts)") { |n| @options.patience = n }
        options.on("--priority", "run servers and load before all other processes (as root): for quick",
          "looks on a shared machine; a database does not get it") { @options.priority = true }
        options.on("--minutes N", Float, "end before N minutes are over, go on there the next time; status #{UNFINISHED}",
          "while there is more to do") { |minutes| @options.minutes = minutes }
        options.on("--continue", "go on where an earlier call was ended, and leave out what is done: what was",
          "measured of this very state in the same way") { @options.continue = true }
        options.on("--save", "write to bench/results also when run with options") { @options.save = true }
        options.on("--list", "show workloads, loads and peers") { @options.list = true }
      end
    end

    def list
      Workload.names.each do |name|
        workload = Workload.load(name)
        puts "#{name.ljust(16)} #{workload.title}"
        puts "#{" " * 17}loads: #{workload.loads.map(&:name).join(", ")}; peers: #{workload.peers.join(", ")}"
        puts "#{" " * 17}sweep: #{workload.swept.join(", ")}" if workload.swept.any?
      end
      puts "#{FairPool::NAME.ljust(16)} #{FairPool::TITLE}"
      0
    end

    # The same server with and without its ladder, in turn: the smallest answer, a Rails app, and requests that compute;
    # and the instructions of a request.
    #
    # @return [Array<String>] the workloads.
    def price_of(names)
      @options.ours ||= %w[fairlead ladderless]
      @options.against ||= ["none"]
      @options.rounds ||= 10
      @options.only ||= { "hello" => ["c32"], "rails-find" => ["c32"], "cpu-turns" => ["c16"] }
      @options.instructions = names.empty? || names.delete("instructions")
      names.empty? && @options.instructions != "instructions" ? @options.only.keys : names
    end

    # Makes what people read of the results, or only says what is not up to date.
    def report_all(words)
      report = Report.new
      if words == ["check"]
        outdated = report.outdated
        outdated.each { |path| puts "#{path} is not what bench/results says: run bin/bench report" }
        return outdated.empty? ? 0 : 1
      end
      raise UsageError, "report takes no #{words.first}; or: report check" if words.any?

      report.write.each { |path| puts path }
      0
    end

    # @return [Integer] 1 if something got worse.
    def compare(paths)
      raise UsageError, "compare takes two files of results, or two folders of them" unless paths.size == 2

      movements = Movements.between(*paths)
      puts movements
      movements.worse? ? 1 : 0
    end

    def choose_workloads(names)
      names = Workload.names if names == ["all"]
      workloads = (names - [FairPool::NAME]).map { |name| Workload.load(name) }
      @options.sweep ? workloads.reject { |workload| names.size > 1 && workload.swept.empty? } : workloads
    end

    # @param pool [Array] not empty if the pool's workload is wanted.
    def measure(workloads, pool)
      toolchain = Toolchain.new(ruby: @options.ruby, build: @options.build_ruby)
      toolchain.install
      deadline = Deadline.new(@options.minutes)
      progress = Progress.new(deadline:)
      runs = workloads.map { |workload| WorkloadRun.new(workload, @options, toolchain:, progress:, deadline:) }
      runs.reject!(&:finished?) if @options.continue
      announce(runs, progress)
      outcomes = []
      runs.each { |run| outcomes << run.run unless outcomes.last == :stopped }
      if pool.any? && !@options.sweep && outcomes.last != :stopped
        outcomes << FairPool.run(toolchain, deadline, @options)
      end
      puts Instructions.new(Workload.load("hello"), toolchain).report(@options.ours) if @options.instructions
      status(outcomes)
    end

    # So that the time left is that of all.
    def announce(runs, progress)
      runs.each { |run| progress.plan(run.name, run.planned) }
      return if runs.size < 2

      warn "#{runs.map(&:name).join(", ")}: about #{Progress.clock(progress.planned)} in all"
    end

    def status(outcomes)
      return UNFINISHED if outcomes.include?(:stopped)

      outcomes.include?(:faulty) ? 1 : 0
    end

    # Two at once would measure each other.
    def alone
      FileUtils.mkdir_p(Toolchain::WORK)
      File.open(File.join(Toolchain::WORK, "lock"), File::CREAT | File::RDWR) do |lock|
        unless lock.flock(File::LOCK_EX | File::LOCK_NB)
          warn "Another bin/bench runs here: waiting for its end"
          lock.flock(File::LOCK_EX)
        end
        yield
      end
    end

    # Where Linux schedules whole sessions against each other, a process's own priority says little beyond its
    # own.
    def raise_priority
      Process.setpriority(Process::PRIO_PROCESS, 0, -15)
      session = "/proc/self/autogroup"
      return unless File.exist?(session)

      before = File.read(session)[/nice (-?\d+)/, 1]
      File.write(session, "-15")
      at_exit { File.write(session, before) }
    rescue Errno::EACCES, Errno::EPERM
      raise UsageError, "--priority needs root"
    end

    # 20,000 connections need as many descriptors in the load tool, and again in the server, which inherits
    # this.
    def raise_descriptor_limit
      _, hard = Process.getrlimit(:NOFILE)
      most = [hard, 65_536].max
      Process.setrlimit(:NOFILE, most, most)
    rescue Errno::EPERM
      Process.setrlimit(:NOFILE, hard, hard)
    end
  end
end
