# frozen_string_literal: true

require "async"
require_relative "../../helper"
require "fairlead/fiber_safety/uninterruptible"

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

    def test_a_timeout_that_begins_within_the_section_ends_its_block
      Sync do |task|
        Uninterruptible.run do
          assert_raises(Async::TimeoutError) { task.with_timeout(0.005) { sleep(1) } }
          assert_raises(Timeout::Error) { Timeout.timeout(0.005) { sleep(1) } }
          reader, writer = IO.pipe
          reader.timeout = 0.005
          assert_raises(IO::TimeoutError) { reader.read(1) }
          assert_raises(IO::TimeoutError) { reader.readpartial(1) }
          full, writer_of_full = IO.pipe
          writer_of_full.timeout = 0.005
          assert_raises(IO::TimeoutError) { writer_of_full.write("x" * 1_000_000) }
        ensure
          [reader, writer, full, writer_of_full].each(&:close)
        end
      end
    end

    def test_a_timeout_between_two_sections_waits_for_the_inner_one_only
      steps = []
      Sync do |task|
        task.with_timeout(1) do
          Uninterruptible.run do
            assert_raises(Async::TimeoutError) do
              task.with_timeout(0.005) { Uninterruptible.run { sleep(0.02); steps << :inner }; steps << :late }
            end
            steps << :outer
          end
        end
      end
      assert_equal %i[inner outer], steps
    end

    def test_of_two_timeouts_none_is_lost
      Sync do |task|
        steps = []
        assert_raises(IOError) do
          task.with_timeout(0.2, IOError) do
            task.with_timeout(0.005, EOFError) { Uninterruptible.run { sleep(0.3) } }
          rescue EOFError
            steps << :inner
            sleep(1)
          end
        end
        assert_equal [:inner], steps
      end
    end

    def test_a_timeout_whose_block_has_been_left_is_not_raised_later
      Sync do |task|
        assert_raises(ArgumentError) do
          task.with_timeout(0.005, ArgumentError) do
            task.with_timeout(0.01, RangeError) { Uninterruptible.run { sleep(0.03) } }
          end
        end
        sleep(0.01)
        task.with_timeout(0.005) { Uninterruptible.run { sleep(0.02) } rescue nil }
      rescue Async::TimeoutError
        sleep(0.01)
      end
    end

    def test_a_cancellation_arrives_behind_a_timeout_that_is_rescued
      steps = []
      Sync do |main|
        task = main.async do
          begin
            main.with_timeout(0.005) { Uninterruptible.run { sleep(0.03) } }
          rescue Async::TimeoutError
            steps << :timeout
          end
          sleep(1)
          steps << :went_on
        end
        sleep(0.01)
        task.cancel
        task.wait
        assert_predicate task, :cancelled?
      end
      assert_equal [:timeout], steps
    end

    def test_who_is_cancelled_twice_within_its_section_cleans_up_in_peace
      steps = []
      Sync do |main|
        task = main.async do
          Uninterruptible.run { sleep(0.01) }
        ensure
          sleep(0.01)
          steps << :cleaned_up
        end
        2.times { task.cancel }
        assert_predicate task, :running?
        refute_predicate task, :cancelled?
        task.wait
        assert_predicate task, :cancelled?
      end
      assert_equal [:cleaned_up], steps
    end

    def test_a_section_in_the_clean_up_of_a_cancelled_task_is_finished
      steps = []
      Sync do |main|
        task = main.async do
          sleep(1)
        ensure
          Uninterruptible.run { sleep(0.01); steps << :cleaned_up }
          steps << :went_on
        end
        2.times { task.cancel }
        task.wait
      end
      assert_equal [:cleaned_up], steps
    end

    def test_a_scheduler_that_closes_lets_sections_finish
      steps = []
      Thread.new do
        Fiber.set_scheduler(Async::Scheduler.new)
        Fiber.schedule { Uninterruptible.run { 3.times { sleep(0.005); steps << :step } } }
        Fiber.scheduler.stop
        Fiber.set_scheduler(nil)
      end.join
      assert_equal %i[step step step], steps
    end

    def test_a_section_in_an_enumerator_is_finished
      steps = []
      Sync do |task|
        assert_raises(Async::TimeoutError) do
          task.with_timeout(0.005) do
            enumerator = Enumerator.new { |yielder| yielder << Uninterruptible.run { sleep(0.02); steps << :finished; 1 } }
            steps << enumerator.next
            sleep(1)
          end
        end
      end
      assert_equal [:finished, 1], steps
    end

    def test_a_fiber_that_is_killed_finishes_its_section
      steps = []
      Sync do
        fiber = Fiber.schedule { Uninterruptible.run { sleep(0.01); steps << :finished }; steps << :went_on }
        fiber.kill
        sleep(0.02)
        refute_predicate fiber, :alive?
      end
      assert_equal [:finished], steps
    end

    def test_what_has_been_forgotten_is_not_raised
      Sync do |task|
        Uninterruptible.run do
          task.async { 2.times { |i| Fiber.scheduler.raise(task.fiber, RuntimeError, "error #{i}") } }
          sleep(0.005)
        end
      rescue RuntimeError => error
        assert_equal "error 0", error.message
        Uninterruptible.forget(Fiber.current)
        sleep(0.005)
      end
    end

    def test_in_threads_timeouts_fire_in_the_section_they_began_in
      steps = []
      thread = Thread.new do
        Timeout.timeout(0.02) do
          Uninterruptible.run do
            assert_raises(Timeout::Error) { Timeout.timeout(0.005) { sleep(1) } }
            assert_raises(ArgumentError) { Timeout.timeout(0.005, ArgumentError) { sleep(1) } }
            Timeout.timeout(0.005) { Uninterruptible.run { sleep(0.02); steps << :inner } }
          rescue Timeout::Error
            sleep(0.03)
            steps << :outer
          end
          steps << :went_on
        end
      rescue Timeout::Error
        steps << :timeout
      end
      thread.join
      assert_equal %i[inner outer timeout], steps
    end

    def test_a_timeout_that_was_moved_ends_with_its_block
      Sync do |task|
        assert_raises(Async::TimeoutError) do
          task.with_timeout(9) do |outer|
            task.with_timeout(9) do |inner|
              outer.duration = inner.duration = 0.001
              sleep(1)
            end
          end
        end
        sleep(0.01)
      end
    end
    # --- Thread.handle_interrupt

    def test_never_holds_back_what_it_names_until_its_end
      { Exception => :held, StandardError => :held, Async::TimeoutError => :held, IOError => :at_once, Object => :held }.each do |type, expected|
        assert_equal expected, told({ type => :never }) { |&wait| wait.call }, type
      end
    end

    def test_immediate_within_never_lifts_it_and_tells_what_has_come_before
      assert_equal :at_once, told({ Exception => :never }) { |&wait| Thread.handle_interrupt(Exception => :immediate, &wait) }
      assert_equal :at_once, told({ Exception => :never }) { |&wait| Thread.handle_interrupt(StandardError => :on_blocking, &wait) }
      assert_equal :held, told({ Exception => :never }) { |&wait| Thread.handle_interrupt(IOError => :immediate, &wait) }
      assert_equal :held, told({ Exception => :immediate }) { |&wait| Thread.handle_interrupt(Exception => :never, &wait) }

      steps = []
      Sync do |task|
        task.with_timeout(0.005) do
          Thread.handle_interrupt(Exception => :never) do
            sleep(0.02)
            steps << :waited
            Thread.handle_interrupt(Exception => :immediate) { steps << :never_reached }
          ensure
            sleep(0.001)
            steps << :cleaned_up
          end
        end
      rescue Async::TimeoutError
        steps << :told
      end
      assert_equal %i[waited cleaned_up told], steps
    end

    def test_nothing_within_lifts_an_uninterruptible_section
      assert_equal :held, told { |&wait| Uninterruptible.run { Thread.handle_interrupt(Exception => :immediate, &wait) } }
    end

    # Ruby counts a kill as a number.
    def test_a_kill_is_held_back_by_object_only
      { Object => true, Exception => false }.each do |type, held|
        finished = false
        Sync do
          fiber = Fiber.new(blocking: false) { Thread.handle_interrupt(type => :never) { Fiber.yield; finished = true } }
          fiber.resume
          fiber.kill
          fiber.resume if fiber.alive?
        end
        assert_equal held, finished, type
      end
    end

    def test_a_timeout_within_ends_its_block
      Sync do
        Thread.handle_interrupt(Exception => :never) do
          assert_raises(Timeout::Error) { Timeout.timeout(0.005) { sleep(1) } }
        end
      end
    end

    # As Timeout's documentation has it: what sets up and cleans up is not to be cut short.
    def test_a_mask_that_names_a_timeout_is_for_timeouts_that_begin_within_too
      steps = []
      Sync do
        Thread.handle_interrupt(Timeout::Error => :never) do
          Timeout.timeout(0.005, Timeout::Error) do
            sleep(0.02)
            steps << :set_up
            Thread.handle_interrupt(Timeout::Error => :immediate) { steps << :never_reached }
          ensure
            sleep(0.001)
            steps << :cleaned_up
          end
        end
      rescue Timeout::Error
        steps << :told
      end
      assert_equal %i[set_up cleaned_up told], steps
    end

    def test_on_blocking_tells_at_the_next_wait
      steps = []
      Sync do |task|
        task.with_timeout(0.005) do
          Thread.handle_interrupt(Exception => :never) do
            sleep(0.02)
            Thread.handle_interrupt(Exception => :on_blocking) { steps << :computed; sleep(1); steps << :waited }
          end
        end
      rescue Async::TimeoutError
        steps << :told
      end
      assert_equal %i[computed told], steps
    end

    def test_what_is_held_back_is_pending
      seen = []
      Sync do |task|
        assert_raises(Async::TimeoutError) do
          task.with_timeout(0.005) do
            Thread.handle_interrupt(Exception => :never) do
              seen << Thread.pending_interrupt?
              sleep(0.02)
              seen << Thread.pending_interrupt? << Thread.pending_interrupt?(Async::TimeoutError) << Thread.pending_interrupt?(IOError)
              seen << Thread.current.pending_interrupt? << Thread.current.pending_interrupt?(IOError)
            end
          end
        end
        seen << Thread.pending_interrupt?
      end
      assert_equal [false, true, true, false, true, false, false], seen
    end

    def test_a_thread_begins_with_the_masks_of_the_fiber_that_starts_it
      Sync do
        Thread.handle_interrupt(RuntimeError => :never) do
          assert_equal :held, Thread.handle_interrupt(IOError => :immediate) { raised_in_thread }
          assert_equal :at_once, Thread.handle_interrupt(RuntimeError => :immediate) { raised_in_thread }
        end
        assert_equal :at_once, Uninterruptible.run { raised_in_thread }
      end
    end

    # As Thread#raise in a thread.
    def test_masks_of_enumerators_hold_back_what_is_raised_at_their_fiber
      { { Exception => :never } => :held, { IOError => :never } => :at_once }.each do |mask, time|
        assert_equal time, told { |&wait| Enumerator.new { |values| Thread.handle_interrupt(mask, &wait); values << 1 }.next; sleep }
      end
    end

    def test_enumerators_that_never_go_on_are_forgotten
      Thread.new do
        Sync { 200.times { masked_enumerator(Exception => :never).next } }
        3.times { GC.start }
        assert_operator Thread.current.fairlead_plain_sections.size, :<, 100
      end.join
    end

    def test_masks_of_enumerators_lift_and_hold_nothing_of_other_fibers
      assert_equal :held, told { |&wait| Uninterruptible.run { masked_enumerator(Exception => :immediate, &wait).next } }
      assert_equal :held, told { |&wait| Uninterruptible.run { masked_enumerator(IOError => :never, &wait).next } }
      assert_equal :held, told({ Exception => :never }) { |&wait| masked_enumerator(Exception => :immediate, &wait).next }

      suspended = masked_enumerator(Exception => :never)
      Sync { suspended.next }
      assert_equal :at_once, told { |&wait| Enumerator.new { |values| wait.call; values << 1 }.next }
    end

    def test_a_section_of_an_enumerator_that_is_not_running_holds_nothing
      Thread.new do
        suspended = Enumerator.new { |values| Uninterruptible.run { values << 1 } }
        assert_equal 1, suspended.next
        assert_equal :at_once, told { |&wait| Enumerator.new { |values| wait.call; values << 1 }.next }
      end.join
    end

    def test_who_is_killed_is_not_brought_back_by_what_was_held_back
      steps = []
      Sync do
        fiber = Fiber.new(blocking: false) do
          Thread.handle_interrupt(Exception => :never) { Fiber.yield }
        rescue IOError
          steps << :rescued
        end
        fiber.resume
        fiber.raise(IOError)
        fiber.kill
      end
      assert_empty steps
    end

    # Threads have one stack of masks, fibers each their own.
    def test_masks_of_fibers_do_not_meet
      seen = []
      Sync do |main|
        masked = main.async { Thread.handle_interrupt(Exception => :never) { sleep(0.03); seen << :finished } }
        open = main.async { Thread.handle_interrupt(Exception => :immediate) { sleep(1) } }
        [masked, open].each(&:cancel)
        [masked, open].each(&:wait)
        seen << Thread.new { Thread.handle_interrupt(Exception => :never) { Thread.pending_interrupt? } }.value
      end
      assert_equal [:finished, false], seen
    end

    def test_wrong_arguments_are_told_as_ruby_does
      Sync do
        assert_raises(ArgumentError) { Thread.handle_interrupt(Exception => :sometimes) { nil } }
        assert_raises(ArgumentError) { Thread.handle_interrupt(Exception => :never) }
        assert_equal 7, Thread.handle_interrupt(Exception => :never) { 7 }
      end
    end

    private

    # @return [Symbol] whether a timeout of a block is raised in a wait within it, or when its outermost section has ended.
    def told(mask = nil, &section)
      waited = false
      wait = proc { sleep(0.02); waited = true }
      Sync do |task|
        task.with_timeout(0.005) { mask ? Thread.handle_interrupt(mask) { section.call(&wait) } : section.call(&wait) }
        :never
      rescue Async::TimeoutError
        waited ? :held : :at_once
      end
    end

    # @return [Symbol] when a new thread gets what is raised in it.
    def raised_in_thread
      began, gate = Thread::Queue.new, Thread::Queue.new
      thread = Thread.start(gate) do |queue|
        began.push(true)
        queue.pop
        Thread.pending_interrupt?(RuntimeError) ? :held : :never
      rescue RuntimeError
        :at_once
      ensure
        Thread.handle_interrupt(RuntimeError => :immediate) { nil } rescue nil
      end
      began.pop
      thread.raise("from outside")
      gate.push(true) if thread.join(0.05).nil?
      thread.value
    end

    def masked_enumerator(mask)
      Enumerator.new { |values| Thread.handle_interrupt(mask) { yield if block_given?; values << 1 } }
    end
  end
end
