# frozen_string_literal: true

require_relative "parts"

module Fairlead
  # The supervisor's side of `database_connections`: a {Budget} for each database server. Workers find out by the first
  # page which one is whose: the server that any of them has met first is the first.
  class Budgets
    # What a worker gets: a page and a socket for each budget.
    Share = Data.define(:pages, :sockets) do
      def close = sockets.each(&:close)
    end

    # @param limit [Integer] for each server.
    # @param slots [Integer] of each page.
    def initialize(limit, slots)
      @pages = Array.new(SharedPage::DATABASES) { SharedPage.new(slots) }
      @budgets = @pages.map { |page| Budget.new(limit, page) }
    end

    # @return [Enumerable<Integer>] their numbers.
    def servers = @budgets.each_index

    # @return [Share] what the worker that comes to this slot gets.
    def admit(slot)
      @pages.each { |page| page.clear(slot) }
      Share.new(pages: @pages, sockets: @budgets.map { |budget| budget.admit(slot) })
    end

    # The worker of this slot has ended.
    def leave(slot)
      @budgets.each { |budget| budget.leave(slot) }
      @pages.each { |page| page.clear(slot) }
    end

    # In a worker: all this is the supervisor's.
    def close = @budgets.each(&:close)

    # @return [Array<IO>] what there is to be noticed.
    def ios = @budgets.flat_map(&:ios)

    # (see Budget#deadline)
    def deadline(now) = @budgets.filter_map { |budget| budget.deadline(now) }.min

    # (see Budget#attend)
    # @yieldparam slot [Integer] a worker that should give back idle connections,
    # @yieldparam server [Integer] to which server,
    # @yieldparam count [Integer] and how many.
    def attend(now)
      @budgets.each_with_index { |budget, server| budget.attend(now) { |slot, count| yield slot, server, count } }
    end
  end
end
