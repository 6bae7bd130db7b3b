# frozen_string_literal: true

require_relative "../parts"

module Fairlead
  # The supervisor's side of `database_connections`: a {Budget} for each database server. Workers find out by the first
  # page which one is whose: the server that any of them has met first is the first.
  #
  # While new code takes over, its supervisor and the older ones keep to one bound together. Each older one says what it
  # keeps; the rest is the new one's, and what that lacks it wishes for. An older one gives up to half of its connections
  # while it serves, and all that it does not need once it leaves.
  class Budgets
    autoload :Exchange, "fairlead/connection_budget/exchange"

    # Seconds between two wishes for the same.
    AGAIN = 0.02
    # For how long, in seconds, one that leaves waits at the end for the database to close its sides.
    LAST = 5.0
    private_constant :AGAIN, :LAST

    # What one supervisor keeps.
    # @!attribute supervisor [Integer] its process id.
    # @!attribute servers [Array<Array(Integer, Integer)>] by what a database server is known, and connections.
    # @!attribute rest [Integer] of each other server.
    Kept = Data.define(:supervisor, :servers, :rest) do
      def of(server) = servers.find { |known, _| known == server }&.last || rest
    end

    # What a worker gets: a page and a socket for each budget.
    Share = Data.define(:pages, :sockets) do
      def close = sockets.each(&:close)
    end

    # @param limit [Integer] for each server.
    # @param slots [Integer] of each page.
    # @param elsewhere [Array<Kept>] what older supervisors keep.
    def initialize(limit, slots, elsewhere: [])
      @limit = limit
      @pages = Array.new(SharedPage::DATABASES) { SharedPage.new(slots) }
      @budgets = @pages.map { |page| Budget.new(limit, page) }
      @elsewhere = elsewhere.to_h { |kept| [kept.supervisor, kept] }
      @wished_at = 0.0
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
      each_known { |budget, known| budget.elsewhere = @elsewhere.each_value.sum { |kept| kept.of(known) } } unless @left_at
      @budgets.each_with_index { |budget, server| budget.attend(now) { |slot, count| yield slot, server, count } }
    end

    # Another supervisor says what it keeps.
    #
    # @param kept [Kept]
    def note(kept)
      @elsewhere[kept.supervisor] = kept
      @budgets.each(&:look)
    end

    # New code lacks connections.
    #
    # @param server [Integer] by what it is known.
    # @param count [Integer] how many it could use in all.
    def lend(server, count) = @budgets[@pages.first.database(server)].lend(count)

    # There is no new code after all.
    def take_back = @budgets.each(&:take_back)

    # @yieldparam server [Integer] by what it is known.
    # @yieldparam count [Integer] how many are needed in all, of which older supervisors keep some.
    def wishes(now)
      return if @elsewhere.empty? || now - @wished_at < AGAIN

      each_known do |budget, known|
        next unless (count = budget.wish).positive?

        @wished_at = now
        yield known, count
      end
    end

    # New code serves. To be called again, as requests end.
    #
    # @param busy [Integer] how many run here yet.
    def leave_to_others(now, busy)
      @left_at ||= now
      @budgets.each { |budget| budget.give_up_all_but(busy) }
    end

    # @return [Kept]
    def kept
      servers = []
      each_known { |budget, known| servers << [known, budget.kept] }
      Kept.new(supervisor: Process.pid, servers:, rest: @left_at ? 0 : @limit)
    end

    # Of one that has left: a database closes its sides a little later than its clients end.
    #
    # @return [Boolean] whether all is over.
    def over?(now) = @left_at.nil? || @budgets.sum(&:used).zero? || now - @left_at > LAST

    private

    # The pages know as many servers as workers have met.
    def each_known = @pages.first.databases.zip(@budgets) { |known, budget| yield budget, known unless known.zero? }
  end
end
