# frozen_string_literal: true

require_relative "../../helper"
require "async"
require "active_support"
require "active_support/isolated_execution_state"

module Fairlead
  # Covers fiber_safety/thread_variables.rb
  class FiberStateTest < Test
    def test_what_a_request_sets_is_gone_after_it
      in_a_serving_fiber do |state|
        Thread.current[:user] = "a"
        Fiber[:request] = "b"
        Fiber.current.active_support_execution_state = { zone: "c" }

        state.restore

        assert_empty Thread.current.keys
        refute Fiber[:request]
        refute Fiber.current.active_support_execution_state
      end
    end

    def test_what_was_there_at_birth_comes_back
      Fiber[:boot] = Fiber[:gone] = "from the boot"
      in_a_serving_fiber(before: -> { Thread.current[:born] = "with" }) do |state|
        Thread.current[:born] = Fiber[:boot] = "changed"
        Fiber[:gone] = nil
        state.restore

        assert_equal ["with", "from the boot", "from the boot"], [Thread.current[:born], Fiber[:boot], Fiber[:gone]]

        Thread.current[:born] = nil
        state.restore

        assert_equal "with", Thread.current[:born]
      end
    ensure
      Fiber[:boot] = Fiber[:gone] = nil
    end

    def test_a_value_that_equals_the_one_at_birth_but_is_another_is_put_back
      born = String.new("same")
      Fiber[:boot] = born
      in_a_serving_fiber do |state|
        Fiber[:boot] = String.new("same")
        state.restore

        assert_same born, Fiber[:boot]
      end
    ensure
      Fiber[:boot] = nil
    end

    def test_false_is_a_value_too
      in_a_serving_fiber do |state|
        Thread.current[:flag] = Fiber[:flag] = false
        state.restore

        refute Thread.current.key?(:flag)
        refute_includes Fiber.current.storage || {}, :flag
      end
    end

    def test_the_same_fiber_is_clean_after_each_of_many_requests
      in_a_serving_fiber do |state|
        100.times do |n|
          assert_nil Thread.current[:n]
          Thread.current[:n] = Fiber[:n] = n
          state.restore
        end
      end
    end

    Fiber.attr_accessor :fiber_state_test

    def test_an_attribute_of_fibers_is_put_back
      in_a_serving_fiber(before: -> { Fiber.current.fiber_state_test = "born with" }) do |state|
        Fiber.current.fiber_state_test = "of a request"
        state.restore

        assert_equal "born with", Fiber.current.fiber_state_test
      end
    end

    def test_async_keeps_its_task
      in_a_serving_fiber do |state|
        task = Async::Task.current
        state.restore

        assert_same task, Async::Task.current
      end
    end

    def test_a_child_task_left_behind_keeps_the_storage_it_inherited
      in_a_serving_fiber do |state|
        Fiber[:request] = 1
        child = Async { sleep 0; [Fiber[:request], Thread.current[:request]] }
        state.restore

        assert_equal [1, nil], child.wait
      end
    end

    def test_the_registered_locals_of_concurrent_ruby_are_emptied_and_not_registered_again
      require "concurrent/atomic/fiber_local_var"
      variable = Concurrent::FiberLocalVar.new(0)
      in_a_serving_fiber do |state|
        variable.value = 1
        registered = Thread.current[:concurrent_fiber_locals]
        state.restore

        assert_equal 0, variable.value
        variable.value = 2
        assert_same registered, Thread.current[:concurrent_fiber_locals]
      end
    end

    def test_restoring_allocates_next_to_nothing_when_nothing_was_left_behind
      in_a_serving_fiber do |state|
        state.restore
        allocated = Array.new(3) do # what other threads allocate meanwhile counts too
          before = GC.stat(:total_allocated_objects)
          100.times { state.restore }
          GC.stat(:total_allocated_objects) - before
        end

        assert_operator allocated.min, :<=, 210
      end
    end

    private

    def in_a_serving_fiber(before: nil)
      Sync do |parent|
        parent.async do
          before&.call
          yield FiberState.new
        end.wait
      end
    end
  end
end
