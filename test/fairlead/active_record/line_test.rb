# frozen_string_literal: true

require "active_record"
require_relative "../../helper"

module Fairlead
  # In which order those who wait are called.
  class LineTest < Test
    # Of a pool where nobody is called.
    class Lock
      attr_reader :nap

      def wait_for_cond(_, seconds) = sleep(@nap = seconds)
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

    private

    def join(context = Object.new) = @line.join(context, 5)

    # @return [Array<ActiveRecord::Waiter>] all, as they are called.
    def called = Array.new(@line.size) { @line.oldest.tap { @line.call_next } }
  end
end
