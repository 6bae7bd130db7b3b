# frozen_string_literal: true

require "active_record"
require_relative "../../helper"

module Fairlead
  # In which order those who wait are called.
  class LineTest < Test
    # Of a pool where nobody is called.
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
      @line = ActiveRecord::Line.new(Monitor.new)
    end

    def test_those_who_were_called_in_vain_stand_where_their_arrival_puts_them
      waiters = Array.new(4) { join }
      3.times { @line.call_next(:to_open) }
      waiters.first(3).rotate.each { |waiter| @line.call_back(waiter) }

      assert_equal waiters, called
    end

    def test_who_is_preferred_stands_before_those_who_came_earlier
      waiters = Array.new(2) { join }
      preferred = join(@line.preferred = Object.new)
      2.times { @line.call_next }
      [waiters.first, preferred].each { |waiter| @line.call_back(waiter) }

      assert_equal [preferred, *waiters], called
    end

    def test_who_begins_a_new_line_looks_as_soon_as_if_there_had_been_none_before
      @line = ActiveRecord::Line.new(lock = Lock.new)
      first = join
      4.times { @line.rest(first) { false } }

      assert_operator lock.nap, :>, 2 * ActiveRecord::Line::PATIENCE
      @line.leave(first)
      @line.rest(join) { false }

      assert_in_delta ActiveRecord::Line::PATIENCE, lock.nap
    end

    def test_a_lookout_that_is_called_but_resumes_late_looks_first
      @line = ActiveRecord::Line.new(Lock.new(0.01) { @line.call_next })
      looks = 0
      @line.rest(join) { looks += 1 }

      assert_equal 1, looks
    end

    def test_lookouts_of_whom_each_is_called_soon_look_as_often_as_one_that_stays
      @line = ActiveRecord::Line.new(Lock.new(0.0005) { @line.call_next })
      looks = 0
      waiter = join
      20.times do
        following = join
        @line.rest(waiter) { looks += 1 }
        @line.leave(waiter)
        waiter = following
      end

      assert_operator looks, :>=, 2
    end

    private

    def join(context = Object.new) = @line.join(context, 5)

    # @return [Array<ActiveRecord::Waiter>] all, as they are called.
    def called = Array.new(@line.size) { @line.oldest.tap { @line.call_next } }
  end
end
