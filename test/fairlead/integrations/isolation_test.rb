# frozen_string_literal: true

require_relative "../../helper"
require "async"
require "bundler"
require "active_support"
require "active_support/dependencies"

module Fairlead
  class IsolationTest < Test
    def setup
      super
      Isolation.establish
    end

    def test_active_support_goes_by_fiber
      assert_equal :fiber, ::ActiveSupport::IsolatedExecutionState.isolation_level
    end

    def test_a_fiber_that_would_unload_code_waits_for_another_that_runs_it
      interlock = ::ActiveSupport::Dependencies::Interlock.new
      order = []
      Sync do |task|
        runner = task.async { interlock.running { sleep 0.02; order << :ran } }
        unloader = task.async { interlock.unloading { order << :unloaded } }
        [runner, unloader].each(&:wait)
      end

      assert_equal %i[ran unloaded], order
    end

    def test_a_fiber_that_would_run_code_waits_for_another_that_unloads_it
      interlock = ::ActiveSupport::Dependencies::Interlock.new
      order = []
      Sync do |task|
        unloader = task.async { interlock.unloading { sleep 0.02; order << :unloaded } }
        runner = task.async { interlock.running { order << :ran } }
        [runner, unloader].each(&:wait)
      end

      assert_equal %i[unloaded ran], order
    end

    def test_fibers_that_only_run_code_do_not_wait_for_each_other
      interlock = ::ActiveSupport::Dependencies::Interlock.new
      meeting = Thread::Queue.new
      Sync do |task|
        first = task.async { interlock.running { meeting.pop(timeout: 5) } }
        task.async { interlock.running { meeting.push(:met) } }

        assert_equal :met, first.wait
      end
    end

    def test_without_active_support_nothing_happens
      assert_equal "nil", run_ruby("Fairlead::Isolation.establish; print defined?(::ActiveSupport).inspect", "--disable-gems")
    end

    def test_active_record_that_is_loaded_by_a_request_is_isolated_from_its_first_moment
      assert_equal "[:fiber, true, true]", run_ruby(<<~RUBY, "-rbundler/setup")
        Fairlead::Isolation.establish
        require "active_support"
        state = ActiveSupport::IsolatedExecutionState
        first = state.isolation_level
        state[:x] = 1
        require "active_record"
        ActiveRecord::Base
        shared = Enumerator.new { |all| all << state[:x] }.next == 1
        print [first, shared, Fairlead::ActiveRecord::PoolPatch.installed?].inspect
      RUBY
    end

    def test_fibers_share_the_state_of_the_one_that_has_resumed_them
      state = ::ActiveSupport::IsolatedExecutionState
      state[:fairlead_test] = :outside
      see = -> { state[:fairlead_test] }
      Sync do |task|
        state[:fairlead_test] = :task
        again = Enumerator.new { |all| loop { all << see.call } }
        nested = Fiber.new { sleep 0.001; Enumerator.new { |all| all << Fiber.new(storage: {}) { sleep 0.001; see.call }.resume }.next }

        assert_equal %i[task task], [again.next, nested.resume]
        child = task.async do
          state[:fairlead_test] = :child
          [again.next, Fiber.new { sleep 0.001; see.call }.resume, see.call]
        end
        assert_equal [:task, %i[child child child]], [see.call, child.wait]
        assert_equal :task, again.next
        GC.start
        GC.compact if GC.respond_to?(:compact)

        assert_equal [nil, nil], Thread.new { [see.call, Enumerator.new { |all| all << see.call }.next] }.value
        assert_equal %i[thread thread], Thread.new { state[:fairlead_test] = :thread; [see.call, Enumerator.new { |all| all << see.call }.next] }.value
      end
      assert_equal :outside, Fiber.new { see.call }.resume
    ensure
      state.delete(:fairlead_test)
    end

    # A scheduler that knows nothing of tasks.
    class Sleepers
      def initialize = @sleeping = {}
      def fiber(&) = Fiber.new(blocking: false, &).tap(&:resume)
      def kernel_sleep(seconds) = (@sleeping[Fiber.current] = seconds) && Fiber.yield
      def io_wait(*) = raise(NotImplementedError)
      def block(*) = raise(NotImplementedError)
      def unblock(*) = nil

      def close
        until @sleeping.empty?
          fiber, = @sleeping.min_by { |_, seconds| seconds }
          @sleeping.delete(fiber)
          fiber.resume
        end
      end
    end

    def test_fibers_of_another_scheduler_have_a_state_each
      state = ::ActiveSupport::IsolatedExecutionState
      seen = Thread.new do
        Fiber.set_scheduler(Sleepers.new)
        state[:number] = 0
        answers = []
        2.times do |number|
          Fiber.schedule do
            answers << state[:number]
            state[:number] = number
            Fiber.schedule { answers << state[:number] }
            sleep(number + 1)
            answers << state[:number] << Enumerator.new { |all| all << state[:number] }.next
          end
        end
        Fiber.scheduler.close
        answers << state[:number]
      end.value

      assert_equal [nil, nil, nil, nil, 0, 0, 1, 1, 0], seen
    end

    # Nobody has resumed them: each is another one's.
    def test_fibers_that_transfer_in_a_circle_have_an_owner
      owners = []
      present = Fiber.current
      circle = Array.new(3) do |number|
        Fiber.new do
          loop do
            owners << FiberOwner.current
            (owners.size < 12 ? circle[(number + 1) % 3] : present).transfer
          end
        end
      end
      circle.first.transfer

      assert_equal [12, true], [owners.size, owners.all?(Fiber)]
      assert_same present, FiberOwner.current
    end

    # An ActiveSupport that keeps its state elsewhere would mix requests up.
    def test_a_state_that_cannot_be_cleared_is_not_served
      said = run_ruby(<<~RUBY, "-rbundler/setup")
        require "active_support"
        state = ActiveSupport::IsolatedExecutionState
        kept = {}
        state.define_singleton_method(:[]) { |key| kept[key] }
        state.define_singleton_method(:[]=) { |key, value| kept[key] = value }
        begin
          Fairlead::Isolation.establish
        rescue Fairlead::ConfigurationError => error
          print error.message
        end
      RUBY

      assert_match(/\AThis version of ActiveSupport keeps its isolated state .* it is not served\./, said)
    end

    private

    # Without the bundle, unless asked for: in the tests' own, ActiveRecord is there.
    def run_ruby(script, *flags)
      command = [RbConfig.ruby, *flags, "-I", File.join(ROOT, "lib"), "-r", "fairlead/parts", "-e", script]
      Bundler.with_unbundled_env { IO.popen(command, chdir: ROOT, err: %i[child out], &:read) }
    end
  end
end
