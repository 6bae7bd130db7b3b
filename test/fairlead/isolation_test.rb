# frozen_string_literal: true

require_relative "../helper"
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
      assert_equal "nil", run_ruby("Fairlead::Isolation.establish; print defined?(::ActiveSupport).inspect")
    end

    def test_active_record_that_is_in_the_bundle_may_be_loaded_later
      assert_equal "fiber", run_ruby(<<~RUBY, "-rbundler/setup")
        Fairlead::Isolation.establish
        require "active_record"
        print ActiveSupport::IsolatedExecutionState.isolation_level
      RUBY
    end

    private

    # Without the bundle, unless asked for: in the tests' own, ActiveRecord is there.
    def run_ruby(script, *flags)
      command = [RbConfig.ruby, *flags, "-I", File.join(ROOT, "lib"), "-r", "fairlead/parts", "-e", script]
      Bundler.with_unbundled_env { IO.popen(command, chdir: ROOT, err: %i[child out], &:read) }
    end
  end
end
