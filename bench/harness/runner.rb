# frozen_string_literal: true

require_relative "comparison"
require_relative "process_tree"
require_relative "progress"
require_relative "server_process"

module Bench
  # Runs a workload: in each round every server in turn, in an order shuffled anew, each started fresh, proven,
  # warmed up and put under all loads.
  class Runner
    WARM_UP_CONNECTIONS = 32
    REST_STEP = 0.25
    REST_TIMEOUT = 20
    private_constant :WARM_UP_CONNECTIONS, :REST_STEP, :REST_TIMEOUT

    # @param servers [Array<Server>] ours first.
    # @param patience [Integer] how often a measurement is repeated while other processes disturb it, or the machine
    #   changes its speed; the quietest counts, whatever its figures are.
    # @param progress [#start, #step] is told what is done; see {Progress}.
    # @param deadline [Deadline] no visit is begun that would not end before it.
    # @param peer_rounds [Integer] in how many of the rounds the peers take part.
    # @param visit_seconds [Numeric] what a visit takes, about, before one was made.
    def initialize(workload, servers, toolchain:, rounds:, loads:, random:, progress:, deadline:,
      visit_seconds:, patience: 0, peer_rounds: rounds)
      @workload = workload
      @servers = servers
      @toolchain = toolchain
      @rounds = rounds
      @loads = loads
      @random = random
      @progress = progress
      @deadline = deadline
      @visit_seconds = visit_seconds
      @patience = patience
      @peer_rounds = peer_rounds
    end

    # Whether a signal ended the run early (what was measured until then counts), or the deadline did.
    attr_reader :interrupted, :stopped

    # @param before [Hash{String => Array<Hash>}] what an earlier call with the same random order has measured.
    # @yield [runs, seconds] after each visit: all runs so far, and what the visit took.
    # @return [Hash{String => Array<Hash>}] the runs of each load, in the order in which they ran.
    def run(before = {})
      runs = @loads.to_h { |load| [load.name, before[load.name] || []] }
      left = visits_left(runs)
      @progress.start(left.size, @workload.name)
      left.each do |round, position, server|
        break @stopped = true unless @deadline.room_for?(@visit_seconds)

        spent = timed do
          visit(server) { |load, figures| runs[load.name] << { server: server.label, round:, position:, **figures } }
        end
        @visit_seconds = [@visit_seconds, spent].max
        @progress.step(round, server.label, @loads.map { |load| [load, runs[load.name].last] })
        yield runs, spent if block_given?
      end
      runs
    rescue SignalException
      @interrupted = true
      runs
    end

    private

    # @return [Array<(Integer, Integer, Server)>] round, place in it, and server.
    def visits_left(runs)
      made = runs.values.first.map { |run| run.values_at(:round, :server) }
      visits = 1.upto(@rounds).flat_map do |round|
        @servers.shuffle(random: @random).each_with_index.map { |server, position| [round, position, server] }
      end
      visits.reject! { |round, _, server| round > @peer_rounds && server != @servers.first }
      visits.reject { |round, _, server| made.include?([round, server.label]) }
    end

    def timed
      started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      yield
      Process.clock_gettime(Process::CLOCK_MONOTONIC) - started
    end

    # Yields the figures of every load; where the server fails, those that say so.
    def visit(server, &block)
      return visit_with(server, @loads, &block) unless @workload.fresh

      @loads.each do |load|
        figures = visit_once(server, load)
        figures = load.in_fairness(figures) { |repeated| visit_once(server, repeated) } if server == @servers.first
        block.call(load, figures)
      end
    end

    def visit_once(server, load)
      figures = nil
      visit_with(server, [load]) { |_, found| figures = found }
      figures
    end

    def visit_with(server, loads, &block)
      remaining = loads.dup
      ServerProcess.run(server, @workload, @toolchain) do |process|
        warm_up(process)
        until remaining.empty?
          figures = measure_in_peace(process, remaining.first)
          @workload.fresh ? process.check_running : process.check
          # Under a load that is too much for everybody, no answer is an answer.
          if figures[:requests].zero? && !@workload.fresh
            raise ServerProcess::Failed, "answered no request in #{remaining.first.seconds} s"
          end

          block.call(remaining.shift, figures)
        end
      end
    rescue ServerProcess::Failed, Wrk::Failed => error
      remaining.each { |load| block.call(load, { failed: error.message }) }
    end

    # With as many connections as the first load has: what grows with them has grown.
    def warm_up(process)
      return if @workload.warm_up.zero?

      first = @loads.first.generator
      connections = first.is_a?(Wrk) ? [first.connections, WARM_UP_CONNECTIONS].max : WARM_UP_CONNECTIONS
      Wrk.new(connections:, path: @workload.check_path, timeout: 10).run(process, @workload.warm_up)
      sleep @workload.settle
      await_rest(process)
    end

    # A server that was left with work by the warm-up ends it first; not for ever.
    def await_rest(process)
      (REST_TIMEOUT / REST_STEP).to_i.times do
        before = process.processes.cpu
        sleep REST_STEP
        break if process.processes.cpu - before < REST_STEP * 0.1
      end
    end

    def measure_in_peace(process, load)
      attempts = []
      loop do
        attempts << measure(process, load)
        break if attempts.size > @patience || unrest(attempts.last) < Progress::NOISE
      end
      attempts.min_by { |figures| unrest(figures) }.merge(attempts: attempts.size)
    end

    # Cores that others used, or by how much the server's capacity has moved, where that is known.
    def unrest(figures) = [figures[:other_cpu], figures[:drift].to_f.abs].max

    def measure(process, load)
      load_before = File.read("/proc/loadavg").to_f
      started = clocks(process)
      figures = load.generator.run(process, load.seconds)
      used = clocks(process).merge(started) { |_, after, before| after - before }
      memory = process.processes.memory

      # A generator that reads the server's own figures knows the better moment: its figures win.
      {
        server_cpu: used[:server], cpu_per_request: used[:server] * 1e6 / [figures[:requests], 1].max,
        database_cpu: used[:database],
        other_cpu: [used[:machine] - used[:server] - used[:client] - used[:database], 0].max.fdiv(used[:time]),
        load_before:, **memory, **figures
      }
    end

    def clocks(process)
      times = Process.times
      {
        server: process.processes.cpu, machine: ProcessTree.machine_cpu,
        client: times.utime + times.stime + times.cutime + times.cstime,
        database: @workload.database ? ProcessTree.cpu_of(@workload.database) : 0.0,
        time: Process.clock_gettime(Process::CLOCK_MONOTONIC)
      }
    end
  end
end
