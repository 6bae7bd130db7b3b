# frozen_string_literal: true

require_relative "held_connections"
require_relative "server_process"
require_relative "mixture/app"
require_relative "mixture/census"
require_relative "mixture/client"
require_relative "mixture/ledger"
require_relative "mixture/rungs"

module Fairlead
  # Everything that may happen to a server, at random and for long: requests that wait, ask a database, block in each way
  # and compute, slow clients and such as vanish, and workers that are killed. Each response that is due has to come, to be
  # right, and to come once; and afterwards the server has to hold what it held before.
  class Mixture
    CWORK = File.expand_path("../examples/cwork/lib", __dir__)
    # Of the time, at its end, no worker is killed: then it is seen whether memory stays.
    CALM = 0.3
    # Seconds from one death to the next, at least.
    PAUSE = 1
    # Seconds after which each rung of the ladder must have been used.
    LONG = 60
    # Seconds from one line of how it goes to the next.
    TOLD = 30
    # Seconds that the server has to come to rest.
    REST = 60
    # Seconds more that a slow machine has for what is to be done at least.
    PATIENCE = 300
    # Bytes that a process may grow.
    GROWTH = 24 * 1024 * 1024
    # Ruby lets some 50 MB of garbage come together before it collects: here it does so often, so that what grows is kept.
    THRIFT = {
      "RUBY_GC_MALLOC_LIMIT" => "2000000", "RUBY_GC_MALLOC_LIMIT_MAX" => "4000000", "RUBY_GC_OLDMALLOC_LIMIT" => "2000000",
      "RUBY_GC_OLDMALLOC_LIMIT_MAX" => "4000000", "MALLOC_ARENA_MAX" => "1"
    }.freeze
    # Each place for a reactor keeps its descriptor once it was used; more than 16 there are never, and three at the start.
    PLACES = { "anon_inode:[eventfd]" => 13 }.freeze
    # What a server says in the course of such a time.
    USUAL = Regexp.union(
      "ended unexpectedly", "could not start. It was ended by SIGKILL", "stalled for", "goes on: ", "relief workers serve",
      "in a worker of their own now", "in flight", "kernel does when memory runs out"
    )
    private_constant :CWORK, :CALM, :PAUSE, :LONG, :TOLD, :REST, :PATIENCE, :GROWTH, :THRIFT, :PLACES, :USUAL

    # @return [Array<String>] what was not as it should be; known after {#run}.
    attr_reader :faults
    # @return [Ledger]
    attr_reader :ledger

    # @param seconds [Numeric] of requests
    # @param least [Integer] answers: a slow machine gets more time for them, and for the first that is killed.
    # @param database [String] PostgreSQL's address
    # @param say [#call] is told how it goes.
    def initialize(seconds:, database:, least: 0, workers: 2, clients: 12, seed: 1, say: ->(line) {})
      @seconds = seconds
      @database = database
      @least = least
      @workers = workers
      @clients = clients
      @dice = Random.new(seed)
      @say = say
      @ledger = Ledger.new
      @rungs = Rungs.new
    end

    # @return [self]
    def run
      serve do
        warm_up
        before = census
        bustle
        @say.call("#{@ledger}; #{@rungs.counts(@server.log).map { |name, count| "#{count} #{name}" }.join(", ")}")
        @faults = rest(before)
        @faults.concat(@ledger.faults(File.readlines(@server.path("runs"))))
        @faults.concat(@rungs.faults(@server.log)) if @seconds >= LONG
        @faults.concat(strange_lines.first(5))
      end
      self
    end

    private

    def serve
      env = { "CWORK" => CWORK, "MIXTURE_DATABASE" => @database, "RACK_ENV" => "production", **THRIFT }
      @server = ServerProcess.new(APP, "--workers", @workers.to_s, env:).start.wait_until_ready
      @banner = @server.log
      @census = Census.new(@server, @database)
      yield
    ensure
      @server&.finish
    end

    # What is loaded at the first use is loaded.
    def warm_up
      until (titles = worker_titles).size == @workers && titles.all? { |title| @warm&.include?(title) }
        connections = Array.new(2 * @workers) { HTTPClient.new(@server.connect) }
        connections.each { |client| client.request("GET", "/database?0.02", "X-Number: 0") }
        pids = connections.map { |client| client.response["x-process"].to_i }
        connections.each(&:close)
        @warm = (@warm || []) | @census.processes.select { |_, pid| pids.include?(pid) }.keys
      end
    end

    def worker_titles = @census.processes.keys.grep(/\Aworker \d/)

    def census = { descriptors: @census.descriptors, threads: @census.threads, memory: @census.memory }

    def bustle
      began, over = now, false
      @gives_up = began + @seconds + PATIENCE
      clients = start_clients { over }
      kill_while { now < began + @seconds * (1 - CALM) || short_of?(kills: 1) }
      pause(2) # who came last has loaded what it needs
      @calm_memory = @census.memory
      pause(1) while now < began + @seconds || short_of?(answers: @least)
      over = true
      clients.each(&:join)
      @rungs.note(@census.page[:slots])
    end

    # @yieldreturn [Boolean] whether no other request shall begin.
    def start_clients(&over)
      Array.new(@clients) do
        dice = Random.new(@dice.rand(1 << 30))
        Thread.new { Client.new(@server, @ledger, dice).run(&over) }.tap { |thread| thread.report_on_exception = false }
      end
    end

    # A machine that cannot do it in this time never will.
    def short_of?(kills: 0, answers: 0)
      now < @gives_up && (@ledger.kills < kills || @ledger.counts.fetch(:answered, 0) < answers)
    end

    # Any worker, at any time; but the next only when all are there again, since who dies often comes back later each time.
    def kill_while
      while yield
        pause(PAUSE * (0.5 + @dice.rand))
        next if worker_titles.size < @workers

        @rungs.note(@census.page[:slots])
        kill(@server.worker_pids.sample(random: @dice))
      end
    end

    def kill(pid)
      @ledger.killed(pid, HeldConnections.of(pid))
      @server.signal(:KILL, pid)
    rescue Errno::ENOENT, Errno::ESRCH
      nil # it has just ended
    end

    def pause(seconds)
      sleep(seconds)
      return if now < (@told ||= now) + TOLD

      @told = now
      @say.call("#{@ledger}; MB: #{megabytes(@census.memory)}")
    rescue SystemCallError
      nil # one has just ended: next time
    end

    # @return [Array<String>] what is not as it was before, though it has had time.
    def rest(before)
      limit = now + REST
      sleep(0.2) until (found = unrest(before)).empty? || now > limit
      found + growth(before)
    end

    def unrest(before)
      after = census
      more(before, after, :descriptors, PLACES) + more(before, after, :threads) + @census.unrest
    rescue SystemCallError => error # a process has just ended
      ["the processes change: #{error.message}"]
    end

    # The same processes, with no more of anything.
    def more(before, after, name, allowed = {})
      before, after = before[name], after[name]
      others = (before.keys - after.keys) + (after.keys - before.keys)
      others.map { |title| "#{title} was not there before, or is missing" } + (before.keys & after.keys).flat_map do |title|
        grown = after[title].select { |kind, count| count > before[title].fetch(kind, 0) + allowed.fetch(kind, 0) }
        grown.map { |kind, count| "#{title} has #{count} of #{kind} instead of #{before[title].fetch(kind, 0)}" }
      end
    end

    # The supervisor has lived all the time; a worker since it was last killed.
    def growth(before)
      after = @census.memory
      @say.call("MB: #{[before[:memory], @calm_memory, after].map { |memory| megabytes(memory) }.join(", then ")}")
      from = @calm_memory.merge("supervisor" => before[:memory]["supervisor"])
      after.filter_map do |title, bytes|
        "#{title} has grown from #{from[title]} to #{bytes} bytes" if from[title] && bytes > from[title] + GROWTH
      end
    end

    def megabytes(memory) = memory.map { |title, bytes| "#{title} #{bytes >> 20}" }.join(" ")

    def strange_lines = @server.log.delete_prefix(@banner).lines.grep_v(USUAL)

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
