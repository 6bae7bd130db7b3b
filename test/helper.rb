# frozen_string_literal: true

$LOAD_PATH.unshift File.expand_path("../lib", __dir__)
ENV["FAIRLEAD_CONTROL"] = "tests of process #{Process.pid}" # commands find no server but those of this process' tests

require "minitest/autorun"
require "fairlead/parts"
require_relative "legible"
require_relative "needs"
require_relative "server_process"

Minitest.parallel_executor = Minitest::Parallel::Executor.new(1)

module Fairlead
  # The base of all tests of the Ruby side: what they share to start servers and to await events.
  class Test < Minitest::Test
    extend Needs

    ROOT = File.expand_path("..", __dir__)
    STARTING = Mutex.new
    private_constant :STARTING

    class << self
      # @return [Hash{Symbol => ServerProcess}] what the tests of this class share, by name.
      def shared = (@shared ||= {})

      # Ends it once they have all run.
      def run_suite(...)
        super
      ensure
        shared.each_value(&:finish).clear
      end
    end

    def teardown
      servers = [*@servers, *self.class.shared.values]
      explain_failures(servers) unless passed? || skipped?
      (@servers || []).each(&:finish)
      super
      await_rest
      assert_empty servers.filter_map(&:crash), "a process of the server crashed"
    end

    # Starts the real command on an app and waits until it is ready; it is stopped when the block ends, or,
    # without a block, when the test does. See ServerProcess for what it can do.
    #
    # @param app [String] the text of a config.ru. Rack::Lint wraps it.
    # @param lint [Boolean] false where the app breaks the rules, where the lines of its file count, and where so much is
    #   asked that Lint would be what is measured.
    # @param flags [Array<String>] flags of the command. One worker on a free port, unless they say otherwise.
    # @param env [Hash{String => String, nil}] environment variables; nil unsets one.
    # @param files [Hash{String => String}] further files of the app's folder: path => text.
    # @param ready [Boolean] whether to wait until it serves.
    def with_server(app, *flags, env: {}, files: {}, lint: true, ready: true, **options)
      server = of_this_test(ServerProcess.new(app, *flags, env:, files:, lint:, **options)).start
      server.wait_until_ready if ready
      return server unless block_given?

      begin
        yield server
      rescue StandardError, Minitest::Assertion => error
        server.remember unless error.is_a?(Minitest::Skip)
        raise
      ensure
        server.finish
      end
    end

    # Has a server end with the test.
    #
    # @return [ServerProcess]
    def of_this_test(server) = server.tap { (@servers ||= []) << server }

    # A server for all tests of the class: the first that asks for it starts it, whichever thread that is.
    #
    # @yieldreturn [ServerProcess] not started yet.
    def shared(name = :server)
      STARTING.synchronize do
        self.class.shared[name] ||= begin
          server = yield
          server.start.wait_until_ready
        rescue StandardError
          server&.finish
          raise
        end
      end
    end

    # The same, of an app. (see #with_server)
    def shared_server(app, *flags, name: :server, lint: true, **options)
      shared(name) { ServerProcess.new(app, *flags, lint:, **options) }
    end

    # @param kind [Class] of threads that the system allows no more of meanwhile.
    def without_more_threads(kind = Thread)
      refusal = Module.new do
        def new(*) = raise(ThreadError, "can't create Thread: Resource temporarily unavailable")
      end
      kind.singleton_class.prepend(refusal)
      yield
    ensure
      refusal.remove_method(:new)
    end

    # @return [Float] seconds of the processors that a process has had.
    def cpu_time(pid) = File.read("/proc/#{pid}/stat").split[13, 2].sum(&:to_i) / 100.0

    # @return [Array<String>] what a process has open; of one that has ended, nothing.
    def opened(pid)
      Dir.children("/proc/#{pid}/fd").map { |name| File.readlink("/proc/#{pid}/fd/#{name}") rescue "" }
    rescue Errno::ENOENT
      []
    end

    # Waits until the block returns something true, for what has no event to wait for.
    def eventually(what = "the condition", within: 60)
      deadline = monotonic + within
      until (result = yield)
        flunk "#{what} did not come true within #{within} s" if monotonic > deadline
        sleep 0.01
      end
      pass
      result
    end

    # There are answers, and each is so. If not, the failure tells of the first that is not, and what the server has logged.
    #
    # @yieldparam answer what else it may be; without a block the answer itself is compared.
    def assert_each_equal(expected, answers, server = nil)
      refute_empty answers
      wrong = answers.each_index.reject { |index| expected == (block_given? ? yield(answers[index]) : answers[index]) }
      first = wrong.first
      told = answers[first] if first
      told = [told.code, told.body] if told.is_a?(Net::HTTPResponse) # says only its class
      assert_empty wrong, "#{wrong.size} of #{answers.size} are not #{expected.inspect}; number #{first} is " \
                          "#{told.inspect[0, 2_000]}\n#{server&.end_of_log}" if first
      pass
    end

    # For promises about time: the median of some runs is below the limit.
    #
    # @param limit [Numeric]
    # @yieldreturn [Numeric] the seconds of one run, or what else the unit is.
    def assert_median_below(limit, what = nil, runs: 3, unit: "s")
      taken = Array.new(runs) { yield }.sort
      assert_operator taken[runs / 2], :<, limit, "#{"#{what}: " if what}the median of #{taken.map { |one| one.round(4) }.join(", ")} #{unit}"
    end

    # @param numbers [Array<Integer>]
    # @param but_for [Integer] how many of them may be out of place.
    def assert_in_order(numbers, but_for: 0)
      ends = [] # the least last number of a rising sequence of each length
      numbers.each { |number| ends[ends.index { |last| last > number } || ends.size] = number }
      assert_operator numbers.size - ends.size, :<=, but_for, "out of place in #{numbers.inspect}"
    end

    # For independent cases that mostly wait: each has a thread. All have ended when it returns, or tells what each has raised.
    #
    # @yieldparam one [Object] of the cases.
    def each_at_once(cases)
      threads = cases.map do |one|
        Thread.new do
          yield one
          nil
        rescue StandardError, Minitest::Assertion => error
          error
        end
      end
      errors = threads.filter_map(&:value)
      raise errors.first if errors.one?

      flunk(errors.map { |error| error.full_message(highlight: false) }.join("\n")) if errors.any?
    end

    # @return [Float] how many seconds the block took.
    def duration
      started = monotonic
      yield
      monotonic - started
    end

    def monotonic = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    private

    # What a failure says seldom tells why nothing came.
    def explain_failures(servers)
      accounts = servers.filter_map(&:account)
      failures.each { |failure| failure.define_singleton_method(:message) { [super(), *accounts].join("\n") } }
    end

    # A thread that a test has left computing would take its turns of 0.1 s from all tests that come later.
    def await_rest
      busy = -> { Thread.list.select { |thread| thread.status == "run" && thread != Thread.current } }
      return if busy.call.empty?

      eventually("the rest of #{busy.call.map(&:inspect).join(", ")}", within: 5) { busy.call.empty? }
    end
  end
end
