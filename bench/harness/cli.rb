# frozen_string_literal: true

require_relative "deadline"
require_relative "fair_pool"
require_relative "fairlead_build"
require_relative "gaps"
require_relative "instructions"
require_relative "movements"
require_relative "options"
require_relative "progress"
require_relative "report"
require_relative "selection"
require_relative "toolchain"
require_relative "workload"
require_relative "workload_run"

Dir[File.expand_path("../servers/*.rb", __dir__)].sort.each { |path| require path }

module Bench
  # bin/bench: from the arguments to the tables.
  class CLI
    def self.run(arguments) = new.run(arguments)

    # @return [Integer] the exit status: 1 where a run of ours failed or had errors, 3 where the time was over first.
    def run(arguments)
      @options = Options.new
      names = @options.parse(arguments)
      return list if @options.list
      return report_all(names.drop(1)) if names.first == "report"
      return compare(names.drop(1)) if names.first == "compare"

      names = price_of(names.drop(1)) if names.first == "price"
      @options.sweep = !names.delete("sweep").nil?
      @options.continue ||= !@options.minutes.nil?
      if names.empty? && !@options.instructions
        raise UsageError, "which workload? #{Workload.names.join(", ")}, #{FairPool::NAME}, or all"
      end

      selections = choose_workloads(names).map { |workload| Selection.new(workload, @options) }
      raise_descriptor_limit
      raise_priority if @options.priority
      alone { measure(selections, pool: !@options.sweep && names.intersect?([FairPool::NAME, "all"])) }
    rescue UsageError, OptionParser::ParseError => error
      warn "bin/bench: #{error.message}"
      2
    rescue Interrupt
      warn "bin/bench: interrupted"
      130
    end

    private

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
      @options.price = true
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
      Gaps.all.each { |name, gaps| warn "#{name}: #{gaps.join("; ")}" }
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

    # @param pool [Boolean] whether the pool's workload is wanted too.
    def measure(selections, pool:)
      toolchain = Toolchain.new(ruby: @options.ruby, build: @options.build_ruby)
      toolchain.install
      deadline = Deadline.new(@options.minutes)
      progress = Progress.new(deadline:)
      runs = selections.map { |selection| WorkloadRun.new(selection, @options, toolchain:, progress:, deadline:) }
      runs << FairPool.new(@options, toolchain:, deadline:) if pool
      runs.reject!(&:finished?) if @options.continue
      announce(runs, progress)
      outcomes = []
      runs.each do |run|
        break if outcomes.last == :stopped

        outcomes << run.run
        Report.new.write if @options.whole?
      end
      puts Instructions.new(Workload.load("hello"), toolchain).report(@options.ours) if @options.instructions
      status(outcomes)
    end

    # So that the time left is that of all.
    def announce(runs, progress)
      runs.each { |run| progress.plan(run.name, run.planned) }
      warn "#{runs.map(&:name).join(", ")}: about #{Progress.clock(progress.planned)} in all" if runs.any?
    end

    def status(outcomes)
      return Options::UNFINISHED if outcomes.include?(:stopped)

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
