# frozen_string_literal: true

require_relative "helper"

module Fairlead
  # One interruption, or two at once, at each point of the pool's code in turn, and not only where chance
  # happens to put it.
  class PoolInjectionTest < PoolTest
    Interruption = Class.new(StandardError)
    EVENTS = %i[line call return b_call b_return].freeze

    # Ruby never checks for interrupts between the entry of an `ensure` and the deferring of interrupts; a
    # TracePoint would put one there.
    NEVER_CHECKED = /\A\s*::Thread\.handle_interrupt\(NEVER\)|\A\s*ensure/.freeze
    # Path => for each line, whether it is such a one. Ruby 3.1 checks for interrupts while it matches, so this is done before.
    SOURCES = Dir[File.expand_path("../../../lib/fairlead/pool{,/*}.rb", __dir__)]
      .to_h { |path| [path, File.readlines(path).map { |line| line.match?(NEVER_CHECKED) }] }.freeze

    # JRuby traces lines only with --debug, and raises in the calling thread though that is deferred.
    def setup
      skip "interruptions are put at each point on CRuby alone" unless RUBY_ENGINE == "ruby"
    end

    { once: 1, twice: 2 }.each do |word, times|
      define_method("test_taking_a_connection_that_is_there_interrupted_#{word}_anywhere") do
        everywhere(times) do |pool, inject|
          pool.with { nil }
          inject.call { pool.with { |connection| connection.use { nil } } }
        end
      end

      define_method("test_making_a_connection_interrupted_#{word}_anywhere") do
        everywhere(times) do |pool, inject|
          inject.call { pool.with { |connection| connection.use { nil } } }
        end
      end

      define_method("test_waiting_and_being_handed_a_connection_interrupted_#{word}_anywhere") do
        everywhere(times) do |pool, inject|
          giver = holder(pool) { pool.waiting.positive? }
          inject.call { pool.with { |connection| connection.use { nil } } }
        ensure
          giver[:over] = true
          giver.join
        end
      end

      define_method("test_handing_a_connection_over_interrupted_#{word}_anywhere") do
        everywhere(times) do |pool, inject|
          waiter = nil
          inject.call do
            pool.with do
              waiter = Thread.new { pool.with(timeout: 10) { |connection| connection.use { :served } } }
              Thread.pass until pool.waiting == 1
            end
          end
        ensure
          assert_equal :served, waiter.value if waiter
        end
      end

      define_method("test_giving_up_interrupted_#{word}_anywhere") do
        everywhere(times) do |pool, inject|
          giver = holder(pool)
          inject.call { pool.with(timeout: 0.001) { nil } }
        rescue Pool::TimeoutError
          nil
        ensure
          giver[:over] = true
          giver.join
        end
      end

      define_method("test_nested_and_discarded_interrupted_#{word}_anywhere") do
        everywhere(times) do |pool, inject|
          inject.call do
            pool.with do |outer|
              pool.with { |inner| raise "another one" unless outer.equal?(inner) }
              pool.discard_current_connection(&:close)
            end
          end
        end
      end
    end

    # The other order: the interruption has come, and the connection comes at each point of leaving the line.
    def test_being_handed_a_connection_at_each_point_of_leaving_the_line
      at_each_point_after(-> { raise Interruption }) { |pool| pool.with(timeout: 0.001, exception: Interruption) { nil } }
    end

    def test_being_handed_a_connection_at_each_point_of_giving_up
      at_each_point_after(-> {}) { |pool| pool.with(timeout: 0.001, exception: Interruption) { nil } }
    end

    private

    # Waits in vain for the only connection; when the wait has ended, it comes after all, at one event later
    # each time, but where nobody can give it: in the midst of what the waiter does under the lock.
    def at_each_point_after(interruption)
      point = 1
      given = 0
      reached = true
      while reached
        reached = waited = false
        pool, made = connections(1)
        giver = holder(pool)
        give = lambda do
          reached = true
          next if lock(pool).locked?

          given += 1
          giver[:over] = true
          giver.join
        end
        Thread.new do
          trace(point, give, after: -> { waited = true; interruption.call }) { yield pool }
        rescue Interruption
          nil
        end.join
        giver[:over] = true
        giver.join
        assert_whole(pool, made)
        # On a busy machine the time may be over before the wait has begun: once more.
        waited ? point += 1 : reached = true
      end
      assert_operator given, :>, 10
    end

    # Runs the block again and again, with the interruption at one event later each time, until it comes through
    # without one. It must still be able to use the pool at once, and find it whole in the end.
    def everywhere(times)
      point = 0
      loop do
        point += 1
        pool, made = connections(1)
        interrupted = false
        error = nil
        Thread.new do
          yield(pool, proc { |&work|
            begin
              trace(point, -> { interrupted = true; interrupt(times) }, &work)
            rescue Interruption
              nil
            end
          })
        rescue Interruption
          nil
        rescue Exception => raised
          error = raised
        end.join
        raise error if error

        assert_whole(pool, made)
        break unless interrupted
      end
      assert_operator point, :>, 20
    end

    # All are pending before the first one is raised.
    def interrupt(times)
      Thread.handle_interrupt(Interruption => :never) { times.times { Thread.current.raise(Interruption) } }
    end

    # @param after [Proc, nil] to be called when a wait in the line ends; points are counted from there.
    def trace(point, interrupt, after: nil)
      count = after ? -Float::INFINITY : 0
      thread = Thread.current
      trace = TracePoint.new(*EVENTS) do |event|
        next unless Thread.current == thread && (never_checked = SOURCES[event.path])
        next if event.event == :line && never_checked[event.lineno - 1]

        if after && event.event == :return && event.method_id == :wait && event.path.end_with?("waiter.rb")
          ended, after = after, nil
          count = 0
          ended.call
        end
        count += 1
        interrupt.call if count == point
      end
      trace.enable { yield }
    end

    # Holds the only connection until the condition is true, or it is told that it is over.
    def holder(pool)
      taken = Thread::Queue.new
      thread = Thread.new do
        pool.with do
          taken << true
          Thread.pass until Thread.current[:over] || (block_given? && yield)
        end
      end
      taken.pop
      thread
    end
  end
end
