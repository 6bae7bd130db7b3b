# frozen_string_literal: true

require_relative "../../helper"
require "fairlead/connection_budget/connection_budget"

module Fairlead
  # The budget, while new code takes over: two supervisors, and one bound.
  class GenerationsTest < Test
    SERVER = 77

    # A supervisor's side, with the one worker that it has.
    class Side
      attr_reader :budget, :spared

      def initialize(limit, pid, elsewhere: [])
        @pid = pid
        @budget = ConnectionBudget.new(limit, 1, elsewhere:)
        @share = @budget.admit(0)
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
        @budget.update(@now += after) { |_, _, count| @spared = count }
      end

      # @return [Array<Array(Integer, Integer)>] what it requests of older code: servers and counts.
      def requests
        @requests = []
        @budget.report(@now += 1, self)
        @requests
      end

      # As the link to the init process.
      def post(message) = (@requests << message.to_h.values if message.is_a?(Messages::ConnectionRequest))

      def retire(busy) = @budget.retire(@now, busy)

      def finished? = @budget.finished?(@now)

      def retained = @budget.retained.with(supervisor: @pid)

      private

      def tell(words) = @share.sockets.first.send(words, 0)
    end

    def setup
      super
      @old = Side.new(10, 1)
      @old.wait_for(10)
      @new = Side.new(10, 2, elsewhere: [@old.retained])
    end

    def test_what_older_code_keeps_is_not_there_for_newer_code_which_says_what_it_needs
      assert_equal 0, @new.wait_for(3)
      assert_equal [[SERVER, 3]], @new.requests
      assert_empty @old.requests
    end

    def test_older_code_that_serves_gives_up_half_at_most_and_nothing_counts_twice
      @new.wait_for(10)
      @new.requests.each { |one| request(@old, *one) }
      @old.attend

      assert_equal 5, @old.spared
      assert_equal [[SERVER, 10]], @old.retained.servers, "they are open yet"
      @old.close_connections(3)
      @new.budget.handle(@old.retained)

      assert_equal 3, @new.wait_for(10)
      @old.close_connections(2)
      @new.budget.handle(@old.retained)

      assert_equal 2, @new.wait_for(7)
      assert_equal 0, @old.wait_for(4)
    end

    def test_what_is_not_needed_by_the_requests_that_still_run_in_older_code_is_the_newer_ones
      @old.close_connections(9)
      @old.retire(2)
      @new.budget.handle(@old.retained)

      assert_equal 8, @new.wait_for(20)
      assert_equal 1, @old.wait_for(1)
      refute_predicate @old, :finished?
      @old.close_connections(2)
      @old.retire(0)
      @new.budget.handle(@old.retained)

      assert_equal 1, @new.wait_for(12), "there is a worker yet"
      @old.budget.remove(0)
      @old.retire(0)
      @new.budget.handle(@old.retained)

      assert_predicate @old, :finished?
      assert_equal 1, @new.wait_for(11)
      assert_empty @new.requests
    end

    def test_what_is_idle_in_older_code_is_given_up_though_its_requests_go_on
      @old.retire(3)
      @old.attend

      assert_equal 7, @old.spared
      assert_equal [[SERVER, 10]], @old.retained.servers
      @old.close_connections(7)

      assert_equal [[SERVER, 3]], @old.retained.servers
    end

    def test_where_the_newer_code_cannot_serve_the_older_one_has_all_again
      @old.close_connections(10)
      request(@old, SERVER, 4)

      assert_equal 6, @old.wait_for(20)
      @old.budget.reclaim

      assert_equal 4, @old.wait_for(14)
    end

    def test_of_a_database_that_older_code_has_not_met_it_keeps_all_until_it_is_asked
      met = Side.new(10, 3, elsewhere: [Messages::RetainedConnections.new(supervisor: 1, servers: [[5, 1]], rest: 10)])

      assert_equal 0, met.wait_for(1)
      assert_equal [[SERVER, 1]], met.requests
    end

    private

    def request(side, server, count) = side.budget.handle(Messages::ConnectionRequest.new(server:, count:))
  end
end
