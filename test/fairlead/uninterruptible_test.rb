# frozen_string_literal: true

require "async"
require_relative "../helper"
require "fairlead/uninterruptible"

module Fairlead
  # What is raised in a fiber within an uninterruptible section arrives at the section's end.
  class UninterruptibleTest < Test
    def test_a_cancelled_task_finishes_its_section_and_ends_then
      steps = []
      Sync do |main|
        task = main.async do
          Uninterruptible.run { sleep(0.01); steps << :finished }
          steps << :went_on
        ensure
          steps << :cleaned_up
        end
        task.cancel
        task.wait
      end
      assert_equal %i[finished cleaned_up], steps
    end

    def test_a_timeout_is_raised_at_the_end_of_the_section
      Sync do |task|
        finished = false
        error = assert_raises(Async::TimeoutError) do
          task.with_timeout(0.005) { Uninterruptible.run { sleep(0.02); finished = true } }
        end
        assert finished
        assert_equal "execution expired", error.message
      end
    end

    def test_sections_may_be_nested_and_the_outermost_one_raises
      steps = []
      Sync do |task|
        assert_raises(Async::TimeoutError) do
          task.with_timeout(0.005) do
            Uninterruptible.run do
              Uninterruptible.run { sleep(0.02) }
              steps << :outer
              sleep(0.001)
              steps << :end
            end
          end
        end
      end
      assert_equal %i[outer end], steps
    end

    def test_what_the_block_raises_becomes_the_cause
      Sync do |task|
        error = assert_raises(Async::TimeoutError) do
          task.with_timeout(0.005) { Uninterruptible.run { sleep(0.02); raise "broken" } }
        end
        assert_equal "broken", error.cause.message
      end
    end

    def test_a_fiber_is_interruptible_again_after_its_section
      Sync do |task|
        assert_equal 1, Uninterruptible.run { 1 }
        assert_raises(Async::TimeoutError) { task.with_timeout(0.005) { sleep(1) } }
      end
    end

    def test_a_thread_that_is_killed_finishes_its_section
      finished = false
      inside = Thread::Queue.new
      thread = Thread.new { Uninterruptible.run { inside.push(true); sleep(0.02); finished = true } }
      inside.pop
      thread.kill.join
      assert finished
    end
  end
end
