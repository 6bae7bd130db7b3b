# frozen_string_literal: true

require_relative "../../helper"
require "fairlead/connection_budget/connection_budget"

module Fairlead
  # The budget, while new code takes over: two supervisors, and one bound.
  class GenerationsTest < Test
    SERVER = 77

    # A supervisor's side, with the one worker that it has.
    class Side
      attr_reader :budgets, :spared

      def initialize(limit, pid, elsewhere: [])
        @pid = pid
        @budgets = Budgets.new(limit, 1, elsewhere:)
        @share = @budgets.admit(0)
        @page = @share.pages.first
        @page.database(SERVER)
        @now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        @opened = @closed = 0
      end

      # So many requests wait for a connection. What is granted is opened, until no more is.
      def wait_for(count)
        opened_before = @opened
        tell("want")
        loop do
          @page.write(0, :database_waiting, count - (@opened - opened_before))
          attend
          granted = @page.get(0, :database_granted) - @opened
          return @opened - opened_before if granted.zero?

          granted.times { tell("open #{@opened += 1}") }
          @page.write(0, :database_taken, @opened)
        end
      end

      def close_connections(count)
        count.times { tell("free #{@closed += 1}") }
        attend(after: 1) # the database has closed its side
      end

      def attend(after: 0.02)
        @spared = 0
        @budgets.attend(@now += after) { |_, _, count| @spared = count }
      end

      def wishes
        wishes = []
        @budgets.wishes(@now += 1) { |*wish| wishes << wish }
        wishes
      end

      def leave(busy) = @budgets.leave_to_others(@now, busy)

      def over? = @budgets.over?(@now)

      def kept = @budgets.kept.with(supervisor: @pid)

      private

      def tell(words) = @share.sockets.first.send(words, 0)
    end

    def setup
      super
      @old = Side.new(10, 1)
      @old.wait_for(10)
      @new = Side.new(10, 2, elsewhere: [@old.kept])
    end

    def test_what_older_code_keeps_is_not_there_for_newer_code_which_says_what_it_needs
      assert_equal 0, @new.wait_for(3)
      assert_equal [[SERVER, 3]], @new.wishes
      assert_empty @old.wishes
    end

    def test_older_code_that_serves_gives_up_half_at_most_and_nothing_counts_twice
      @new.wait_for(10)
      @new.wishes.each { |wish| @old.budgets.lend(*wish) }
      @old.attend

      assert_equal 5, @old.spared
      assert_equal [[SERVER, 10]], @old.kept.servers, "they are open yet"
      @old.close_connections(3)
      @new.budgets.note(@old.kept)

      assert_equal 3, @new.wait_for(10)
      @old.close_connections(2)
      @new.budgets.note(@old.kept)

      assert_equal 2, @new.wait_for(7)
      assert_equal 0, @old.wait_for(4)
    end

    def test_what_is_not_needed_by_the_requests_that_still_run_in_older_code_is_the_newer_ones
      @old.close_connections(9)
      @old.leave(2)
      @new.budgets.note(@old.kept)

      assert_equal 8, @new.wait_for(20)
      assert_equal 1, @old.wait_for(1)
      refute_predicate @old, :over?
      @old.close_connections(2)
      @old.leave(0)
      @new.budgets.note(@old.kept)

      assert_equal 1, @new.wait_for(12), "there is a worker yet"
      @old.budgets.leave(0)
      @old.leave(0)
      @new.budgets.note(@old.kept)

      assert_predicate @old, :over?
      assert_equal 1, @new.wait_for(11)
      assert_empty @new.wishes
    end

    def test_what_is_idle_in_older_code_is_given_up_though_its_requests_go_on
      @old.leave(3)
      @old.attend

      assert_equal 7, @old.spared
      assert_equal [[SERVER, 10]], @old.kept.servers
      @old.close_connections(7)

      assert_equal [[SERVER, 3]], @old.kept.servers
    end

    def test_where_the_newer_code_cannot_serve_the_older_one_has_all_again
      @old.close_connections(10)
      @old.budgets.lend(SERVER, 4)

      assert_equal 6, @old.wait_for(20)
      @old.budgets.take_back

      assert_equal 4, @old.wait_for(14)
    end

    def test_of_a_database_that_older_code_has_not_met_it_keeps_all_until_it_is_asked
      met = Side.new(10, 3, elsewhere: [Budgets::Kept.new(supervisor: 1, servers: [[5, 1]], rest: 10)])

      assert_equal 0, met.wait_for(1)
      assert_equal [[SERVER, 1]], met.wishes
    end
  end
end
