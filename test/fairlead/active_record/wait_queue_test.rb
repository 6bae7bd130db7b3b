# frozen_string_literal: true

require "active_record"
require_relative "../../helper"

module Fairlead
  # In which order waiters are served, and how often the queue polls.
  class WaitQueueTest < Test
    # Of a pool where nothing is free.
    class Lock
      attr_reader :nap

      # @param seconds [Float, nil] that each wait takes; nil: as many as it may.
      # @yield meanwhile
      def initialize(seconds = nil, &meanwhile)
        @seconds = seconds
        @meanwhile = meanwhile
      end

      def wait_for_cond(_, seconds)
        @nap = seconds
        @meanwhile&.call
        sleep(@seconds || seconds)
      end
    end
    private_constant :Lock

    def setup
      super
      @queue = ActiveRecord::WaitQueue.new(Monitor.new)
    end

    def test_waiters_that_could_not_be_served_return_to_the_place_of_their_arrival
      waiters = Array.new(4) { join }
      3.times { @queue.assign_next(:open) }
      waiters.first(3).rotate.each { |waiter| @queue.restore(waiter) }

      assert_equal waiters, served
    end

    def test_a_preferred_waiter_is_served_before_older_ones
      waiters = Array.new(2) { join }
      preferred = join(@queue.preferred = Object.new)
      2.times { @queue.assign_next }
      [waiters.first, preferred].each { |waiter| @queue.restore(waiter) }

      assert_equal [preferred, *waiters], served
    end

    def test_the_first_waiter_of_an_empty_queue_polls_as_soon_as_the_first_of_all
      @queue = ActiveRecord::WaitQueue.new(lock = Lock.new)
      first = join
      4.times { @queue.wait(first) { false } }

      assert_operator lock.nap, :>, 2 * ActiveRecord::WaitQueue::OPEN_AFTER
      @queue.remove(first)
      @queue.wait(join) { false }

      assert_in_delta ActiveRecord::WaitQueue::OPEN_AFTER, lock.nap
    end

    def test_a_poller_that_is_served_but_resumes_late_polls_first
      @queue = ActiveRecord::WaitQueue.new(Lock.new(0.01) { @queue.assign_next })
      polls = 0
      @queue.wait(join) { polls += 1 }

      assert_equal 1, polls
    end

    def test_pollers_that_are_each_served_soon_poll_as_often_as_one_that_stays
      @queue = ActiveRecord::WaitQueue.new(Lock.new(0.0005) { @queue.assign_next })
      polls = 0
      waiter = join
      20.times do
        following = join
        @queue.wait(waiter) { polls += 1 }
        @queue.remove(waiter)
        waiter = following
      end

      assert_operator polls, :>=, 2
    end

    private

    # Each in a fiber of its own.
    def join(context = Object.new) = Fiber.new { Fiber.yield(@queue.join(context, 5)) }.resume

    # @return [Array<ActiveRecord::Waiter>] all, in the order in which they are served.
    def served = Array.new(@queue.size) { @queue.oldest.tap { @queue.assign_next } }
  end
end
