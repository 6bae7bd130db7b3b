# frozen_string_literal: true

require "optparse"
require_relative "database"
require_relative "fair_pool"
require_relative "fairlead_build"
require_relative "movements"
require_relative "progress"
require_relative "report"
require_relative "results"
require_relative "runner"
require_relative "server"
require_relative "table"
require_relative "toolchain"
require_relative "workload"

Dir[File.expand_path("../servers/*.rb", __dir__)].sort.each { |path| require path }

module Bench
  # bin/bench: from the arguments to the tables.
  class CLI
    Options = Struct.new(:against, :rounds, :seconds, :only, :ruby, :build_ruby, :seed, :save, :list, :ours,
      :patience, :priority) do
      # Whether the result is one to publish: every peer and every load, at the full length.
      def whole? = save || [against, rounds, seconds, only, ours, priority].none?
    end
    ROUNDS = 5
    # Seconds to start and stop a server, about.
    BOOT = 3

    def self.run(arguments) = new.run(arguments)

    # @return [Integer] the exit status: 1 where a run of ours failed or had errors.
    def run(arguments)
      @options = Options.new
      names = parser.parse(arguments)
      return list if @options.list
      return report_all(names.drop(1)) if names.first == "report"
      return compare(names.drop(1)) if names.first == "compare"
      raise UsageError, "which workload? #{Workload.names.join(", ")}, #{FairPool::NAME}, or all" if names.empty?

      names = [*Workload.names, FairPool::NAME] if names == ["all"]
      pool = names.delete(FairPool::NAME)
      workloads = names.map { |name| Workload.load(name) }
      raise_descriptor_limit
      raise_priority if @options.priority
      @toolchain = Toolchain.new(ruby: @options.ruby, build: @options.build_ruby)
      alone do
        @toolchain.install
        @progress = Progress.new
        plan(workloads)
        results = workloads.map { |workload| bench(workload) }
        results << FairPool.run(@toolchain) if pool
        results.all? ? 0 : 1
      end
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
          "       bin/bench report [check]      the page of charts, and the README's table and picture\n" \
          "       bin/bench compare BEFORE AFTER    what moved between two results, beyond their noise\n\n"
        options.on("--against LIST", Array, "only these peers (puma,falcon; with a setting: puma:60)") do |list|
          @options.against = list
        end
        options.on("--rounds N", Integer, "rounds, each of which measures every server (#{ROUNDS})") do |n|
          @options.rounds = n
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
        options.on("--save", "write to bench/results also when run with options") { @options.save = true }
        options.on("--list", "show workloads, loads and peers") { @options.list = true }
      end
    end

    def list
      Workload.names.each do |name|
        workload = Workload.load(name)
        puts "#{name.ljust(16)} #{workload.title}"
        puts "#{" " * 17}loads: #{workload.loads.map(&:name).join(", ")}; peers: #{workload.peers.join(", ")}"
      end
      puts "#{FairPool::NAME.ljust(16)} #{FairPool::TITLE}"
      0
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

    def bench(workload)
      servers = choose_servers(workload)
      loads = choose_loads(workload)
      versions = prepare(workload, servers)
      rounds = @options.rounds || ROUNDS
      seconds = @options.seconds || workload.seconds
      seed = @options.seed || Random.new_seed % 100_000
      labels = servers.map(&:label)
      warn "#{workload.name}: #{labels.join(", ")}; #{rounds} rounds of #{seconds} s, seed #{seed}"

      runner = Runner.new(
        workload, servers, toolchain: @toolchain, rounds:, seconds:, loads:, random: Random.new(seed),
        progress: @progress, patience: @options.patience || 0
      )
      runs = runner.run
      raise Interrupt if runs.values.first.empty?

      document = Results.document(
        workload, servers, runs, toolchain: @toolchain, rounds:, seconds:, seed:, versions:
      )
      path = Results.write(document, whole: @options.whole? && !runner.interrupted)
      loads.map { |load| report(workload, load, runs[load.name], rounds, seconds, labels) }
        .all?.tap { puts "", "Written to #{path.delete_prefix("#{Toolchain::ROOT}/")}" }
        .tap { raise Interrupt if runner.interrupted }
    end

    # So that the time left is that of all.
    def plan(workloads)
      workloads.each { |workload| @progress.plan(workload.name, duration(workload)) }
      return if workloads.size < 2

      warn "#{workloads.map(&:name).join(", ")}: about #{Progress.clock(@progress.planned)} in all"
    end

    # @return [Float] seconds, for a start.
    def duration(workload)
      loads = choose_loads(workload)
      servers = choose_servers(workload, quietly: true).size
      starts = workload.fresh ? loads.size : 1
      each = (starts * (BOOT + workload.warm_up + workload.settle)) + (loads.size * (@options.seconds || workload.seconds))
      servers * (@options.rounds || ROUNDS) * each
    end

    # @return [Boolean] whether ours had no error.
    def report(workload, load, runs, rounds, seconds, order)
      comparison = Comparison.new(runs, order:)
      puts "", "#{workload.name} #{load.name}: #{load.generator.description}; #{workload.workers} worker, " \
        "#{rounds} × #{seconds} s"
      puts "ideal: #{load.ideal}" if load.ideal
      puts Table.new(comparison, main: load.generator.main_figure)
      puts verdicts(workload, load, comparison) if order.first == "fairlead"
      comparison.servers.each do |server|
        comparison.failures(server).uniq.each { |message| puts "#{server} failed: #{message}" }
      end
      puts noise(comparison)
      comparison.faultless?
    end

    def verdicts(workload, load, comparison)
      workload.aims.select { |aim| aim.load == load.name }.map do |aim|
        reached = aim.test.call(comparison)
        reached.nil? ? "  ? #{aim.text}: not measured" : "  #{reached ? "✓" : "✗"} #{aim.text}"
      end
    end

    def noise(comparison)
      used = comparison.servers.filter_map { |server| comparison.summary(server, :other_cpu)&.maximum }.max
      return unless used && used > Progress::NOISE

      "  ! other processes used up to #{used.round(2)} cores meanwhile: the figures are doubtful"
    end

    def choose_servers(workload, quietly: false)
      ours = @options.ours || ["fairlead"]
      peers = workload.peers
      peers = @options.against.flat_map { |name| chosen_peers(peers, name) } if @options.against
      servers = (ours + peers).uniq.map { |label| Server.for(label) }
      servers.reject do |server|
        reason = server.unavailable or next
        warn "leaving out #{server.label}: #{reason}" unless quietly
        true
      end
    end

    # A bare name means all of a workload's settings of that server.
    def chosen_peers(peers, name)
      return [name] if name.include?(":")

      found = peers.select { |label| label == name || label.start_with?("#{name}:") }
      found.empty? ? [name] : found
    end

    def choose_loads(workload)
      return workload.loads unless @options.only

      unknown = @options.only - workload.loads.map(&:name)
      known = workload.loads.map(&:name).join(", ")
      raise UsageError, "#{workload.name} has no load #{unknown.first}; it has #{known}" if unknown.any?

      workload.loads.select { |load| @options.only.include?(load.name) }
    end

    # @return [Hash{Symbol => String}] versions that the bundle does not know.
    def prepare(workload, servers)
      versions = servers.filter_map { |server| server.prepare(@toolchain) }.reduce({}, :merge)
      versions.merge(Database.prepare(workload, @toolchain))
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
