# frozen_string_literal: true

require_relative "database"
require_relative "outcome"
require_relative "results"
require_relative "runner"
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

    # @param selection [Selection]
    # @param options [Options]
    # @param deadline [Deadline] no visit is begun that would end after it.
    def initialize(selection, options, toolchain:, progress:, deadline:)
      @options = options
      @toolchain = toolchain
      @progress = progress
      @deadline = deadline
      @workload = selection.workload
      @loads = selection.loads
      @servers = selection.servers
    end

    def name = @workload.name

    # @return [Float] seconds that it takes in all, as the last result says, or about.
    def planned = visit_seconds * visits

    # @return [Boolean] whether there is a whole result of the same, so that nothing is left to do.
    def finished?
      whole? && Results.read(name, kind: @options.kind)&.then do |found|
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

    def file_name = [@options.kind, name].compact.join("-")

    def identity
      @identity ||= {
        workload: name, loads: @loads.map(&:name), servers: @servers.map(&:label), rounds:, peer_rounds:,
        seconds: @loads.map(&:seconds), ruby: @toolchain.description, gems: @toolchain.gems,
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
        @workload, @servers, toolchain: @toolchain, rounds:, loads: @loads, random: Random.new(seed),
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
        @workload, @servers, runs, loads: @loads, toolchain: @toolchain, rounds:, peer_rounds:, seconds:, seed:, versions:,
        took:
      )
      path = Results.write(document, whole:, kind: @options.kind)
      order = @servers.map(&:label)
      outcomes = @loads.map { |load| Outcome.new(load, runs[load.name], aims: @workload.aims, order:) }
      outcomes.each { |outcome| puts "", heading(outcome.load), outcome }
      puts "", "Written to #{path.delete_prefix("#{Toolchain::ROOT}/")}"
      outcomes.all?(&:faultless?) ? :good : :faulty
    end

    def heading(load)
      "#{name} #{load.name}: #{load.generator.description}; #{@workload.workers} worker" \
        "#{"s" if @workload.workers > 1}, #{rounds} × #{load.seconds} s"
    end

    # Of one server in one round. The last result knows how long that took; without one it is reckoned.
    def visit_seconds
      @visit_seconds ||= begin
        last = Results.read(name, kind: @options.kind) if @options.only.nil? && @options.seconds.nil?
        visits = last ? last["rounds"] + ((last["peer_rounds"] || last["rounds"]) * (last["servers"].size - 1)) : 0
        last && last["took"] && visits.positive? ? last["took"] / visits : reckoned_visit
      end
    end

    def reckoned_visit
      starts = @workload.fresh ? @loads.size : 1
      (starts * (BOOT + @workload.warm_up + @workload.settle)) +
        @loads.sum { |load| load.generator.respond_to?(:duration) ? load.generator.duration(load.seconds) : load.seconds }
    end
  end
end
