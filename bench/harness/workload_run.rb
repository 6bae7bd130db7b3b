# frozen_string_literal: true

require_relative "database"
require_relative "progress"
require_relative "results"
require_relative "runner"
require_relative "server"
require_relative "table"
require_relative "unfinished"

module Bench
  # One workload with the options of a call: what is measured, for how long, from where an earlier call has left it, and
  # its tables.
  class WorkloadRun
    ROUNDS = 5
    SWEEP_ROUNDS = 3
    # Seconds to start and stop a server, about.
    BOOT = 3
    private_constant :ROUNDS, :SWEEP_ROUNDS, :BOOT

    # @param options [CLI::Options]
    # @param deadline [Deadline] no visit is begun that would end after it.
    def initialize(workload, options, toolchain:, progress:, deadline:)
      @workload = workload
      @options = options
      @toolchain = toolchain
      @progress = progress
      @deadline = deadline
      @loads = choose_loads
      @servers = choose_servers
    end

    def name = @workload.name

    # @return [Float] seconds that it takes in all, as the last result says, or about.
    def planned = visit_seconds * visits

    # @return [Boolean] whether there is a whole result of the same, so that nothing is left to do.
    def finished?
      whole? && Results.read(name, sweep: @options.sweep)&.then do |found|
        Results.identity(found) == JSON.parse(JSON.generate(identity))
      end
    end

    # @return [Symbol] :good, :faulty (ours failed or had errors), :stopped (the rest is for the next call).
    def run
      versions = prepare
      left = Unfinished.new(file_name, identity)
      left.forget unless @options.continue
      seed = left.seed || @options.seed || (Random.new_seed % 100_000)
      say_what(seed, left)
      runs, took, runner = measure(left, seed)
      raise Interrupt if runs.values.first.empty? && runner.interrupted
      return :stopped if runner.stopped

      finish(runs, versions:, seed:, took:, whole: whole? && !runner.interrupted).tap do
        raise Interrupt if runner.interrupted

        left.forget
      end
    end

    private

    def rounds = @options.rounds || (@options.sweep ? SWEEP_ROUNDS : ROUNDS)

    def peer_rounds = [@options.peer_rounds || rounds, rounds].min

    def visits = rounds + (peer_rounds * (@servers.size - 1))

    def seconds = @options.seconds || @workload.seconds

    def whole? = @options.whole?

    def file_name = @options.sweep ? "sweep-#{name}" : name

    def identity
      @identity ||= {
        workload: name, loads: @loads.map(&:name), servers: @servers.map(&:label), rounds:, peer_rounds:, seconds:,
        ruby: @toolchain.description, gems: @toolchain.gems,
        ours: @servers.filter_map { |server| server.prepare(@toolchain) }.reduce({}, :merge)
      }
    end

    # @return [Hash{Symbol => String}] versions that the bundle does not know.
    def prepare = identity[:ours].merge(Database.prepare(@workload, @toolchain))

    def say_what(seed, left)
      done = left.runs.values.first&.size
      warn "#{name}: #{@servers.map(&:label).join(", ")}; #{rounds} rounds of #{seconds} s, seed #{seed}" \
        "#{"; #{done} of #{visits} visits were made before" if done}"
    end

    def measure(left, seed)
      runner = Runner.new(
        @workload, @servers, toolchain: @toolchain, rounds:, seconds:, loads: @loads, random: Random.new(seed),
        progress: @progress, patience: @options.patience || 0, deadline: @deadline, visit_seconds:,
        peer_rounds:
      )
      took = left.took
      runs = runner.run(left.runs) do |so_far, spent|
        took += spent
        left.keep(so_far, seed:, took:)
      end
      [runs, took, runner]
    end

    def finish(runs, versions:, seed:, took:, whole:)
      document = Results.document(
        @workload, @servers, runs, toolchain: @toolchain, rounds:, seconds:, seed:, versions:, took:, sweep: @options.sweep
      )
      path = Results.write(document, whole:)
      good = @loads.map { |load| report(load, runs[load.name]) }.all?
      puts "", "Written to #{path.delete_prefix("#{Toolchain::ROOT}/")}"
      good ? :good : :faulty
    end

    # @return [Boolean] whether ours had no error.
    def report(load, runs)
      order = @servers.map(&:label)
      comparison = Comparison.new(runs, order:)
      puts "", "#{name} #{load.name}: #{load.generator.description}; #{@workload.workers} worker" \
        "#{"s" if @workload.workers > 1}, #{rounds} × #{seconds} s"
      puts "ideal: #{load.ideal}" if load.ideal
      puts Table.new(comparison, main: load.generator.main_figure)
      puts verdicts(load, comparison) if order.first == "fairlead"
      comparison.servers.each do |server|
        comparison.failures(server).uniq.each { |message| puts "#{server} failed: #{message}" }
      end
      puts misses(load, comparison), movements(comparison), noise(comparison)
      comparison.faultless?
    end

    def verdicts(load, comparison)
      @workload.aims.select { |aim| aim.load == load.name }.map do |aim|
        reached = aim.test.call(comparison)
        reached.nil? ? "  ? #{aim.text}: not measured" : "  #{reached ? "✓" : "✗"} #{aim.text}"
      end
    end

    # Between states of ours, a difference is told from none by the interval of the ratio.
    def movements(comparison)
      comparison.servers.drop(1).grep(/\A(fairlead|ladderless)/).filter_map do |server|
        parts = { "requests/s" => :requests_per_second, "p99" => :p99 }.filter_map do |title, figure|
          interval = comparison.interval(server, figure) or next
          "#{title} #{interval.map { |bound| format("%.3f", bound) }.join("–")}"
        end
        "  #{comparison.reference} ÷ #{server}, with 95 % confidence: #{parts.join(", ")}" unless parts.empty?
      end
    end

    # Runs that were repeated, since they missed what is asked of each.
    def misses(load, comparison)
      return [] unless load.most

      figure = load.generator.bounded_figure
      comparison.runs.flat_map { |run| run[:misses] || [] }.map do |run|
        run = run.transform_keys(&:to_sym) # of an earlier call
        "  ! #{run[figure].round} in a run that was repeated; where nothing stalls: #{run[:control]&.round || "no answer"}"
      end
    end

    def noise(comparison)
      used = comparison.servers.filter_map { |server| comparison.summary(server, :other_cpu)&.maximum }.max
      return unless used && used > Progress::NOISE

      "  ! other processes used up to #{used.round(2)} cores meanwhile: the figures are doubtful"
    end

    # Of one server in one round. The last result knows how long that took; without one it is reckoned.
    def visit_seconds
      @visit_seconds ||= begin
        last = Results.read(name, sweep: @options.sweep) if @options.only.nil? && @options.seconds.nil?
        visits = last ? last["rounds"] * last["servers"].size : 0
        last && last["took"] && visits.positive? ? last["took"] / visits : reckoned_visit
      end
    end

    def reckoned_visit
      starts = @workload.fresh ? @loads.size : 1
      (starts * (BOOT + @workload.warm_up + @workload.settle)) +
        @loads.sum { |load| load.generator.respond_to?(:duration) ? load.generator.duration(seconds) : seconds }
    end

    def choose_servers
      labels = @options.sweep ? chosen(@workload.swept) : (@options.ours || ["fairlead"]) + chosen(@workload.peers)
      raise UsageError, "#{name} has no settings to sweep" if @options.sweep && labels.empty?

      servers = labels.uniq.map { |label| Server.for(label) }
      servers.reject do |server|
        reason = server.unavailable or next
        warn "leaving out #{server.label}: #{reason}"
        true
      end
    end

    # A bare name means all of a workload's settings of that server.
    def chosen(labels)
      return labels unless @options.against

      (@options.against - ["none"]).flat_map do |name|
        found = labels.select { |label| label == name || label.start_with?("#{name}:") }
        name.include?(":") || found.empty? ? [name] : found
      end
    end

    def choose_loads
      only = @options.only.is_a?(Hash) ? @options.only[name] : @options.only
      return @workload.loads unless only

      unknown = only - @workload.loads.map(&:name)
      known = @workload.loads.map(&:name).join(", ")
      raise UsageError, "#{name} has no load #{unknown.first}; it has #{known}" if unknown.any?

      @workload.loads.select { |load| only.include?(load.name) }
    end
  end
end
