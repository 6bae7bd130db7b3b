# frozen_string_literal: true

require_relative "../parts"

module Fairlead
  # The supervisor's side of `database_connections`: an {Allocator} for each database server. The first page tells workers
  # which one belongs to which server, in the order in which the workers connect to them.
  #
  # During a hot restart, the supervisors of old and new code share one limit. Each supervisor reports how many connections it
  # retains; the newer one has the rest, and requests what it lacks. An older one gives up to half of its connections while it
  # serves, and all that it does not need once it leaves.
  class ConnectionBudget
    autoload :Allocation, "fairlead/connection_budget/allocation"
    autoload :Allocator, "fairlead/connection_budget/allocator"

    # Seconds between two requests for the same connections.
    REQUEST_INTERVAL = 0.02
    # Seconds for which a supervisor that leaves waits for the database to close its sides.
    LAST = 5.0
    private_constant :REQUEST_INTERVAL, :LAST

    # What a worker gets: a page and a socket for each allocator.
    Share = Data.define(:pages, :sockets) do
      def close = sockets.each(&:close)
    end

    # @param limit [Integer] for each server.
    # @param slots [Integer] of each page.
    # @param elsewhere [Array<Messages::RetainedConnections>] what older supervisors retain.
    def initialize(limit, slots, elsewhere: [])
      @limit = limit
      @pages = Array.new(SharedPage::DATABASES) { SharedPage.new(slots) }
      @allocators = @pages.map { |page| Allocator.new(limit, page) }
      @elsewhere = elsewhere.to_h { |retained| [retained.supervisor, retained] }
      @requested_at = 0.0
    end

    # @return [Enumerable<Integer>] their numbers.
    def servers = @allocators.each_index

    # @return [Share] for the worker that takes this slot.
    def admit(slot)
      @pages.each { |page| page.clear(slot) }
      Share.new(pages: @pages, sockets: @allocators.map { |allocator| allocator.admit(slot) })
    end

    # The worker of this slot has ended.
    def remove(slot)
      @allocators.each { |allocator| allocator.remove(slot) }
      @pages.each { |page| page.clear(slot) }
    end

    # In a worker: closes what belongs to the supervisor.
    def close = @allocators.each(&:close)

    # @return [Array<IO>] to wait for until they are readable.
    def ios = @allocators.flat_map(&:ios)

    # (see Allocator#deadline)
    def deadline(now) = @allocators.filter_map { |allocator| allocator.deadline(now) }.min

    # (see Allocator#update)
    # @yieldparam slot [Integer] a worker that should give back idle connections,
    # @yieldparam server [Integer] to which server,
    # @yieldparam count [Integer] and how many.
    def update(now)
      unless @left_at
        each_known do |allocator, known|
          allocator.elsewhere = @elsewhere.each_value.sum { |retained| retained.of(known) }
        end
      end
      @allocators.each_with_index { |allocator, server| allocator.update(now) { |slot, count| yield slot, server, count } }
    end

    # Tells the other supervisors what has changed: what this one requests, and what it retains.
    #
    # @param parent [ParentLink]
    def report(now, parent)
      each_request(now) { |server, count| parent.post(Messages::ConnectionRequest.new(server:, count:)) }
      retained = self.retained
      @reported = retained if retained != @reported && parent.post(retained)
    end

    # @param message [Messages::RetainedConnections, Messages::ConnectionRequest] of another supervisor.
    def handle(message)
      case message
      when Messages::RetainedConnections
        @elsewhere[message.supervisor] = message
        @allocators.each(&:recheck)
      when Messages::ConnectionRequest
        @allocators[@pages.first.database(message.server)].lend(message.count)
      end
    end

    # The new code has failed to start: it needs nothing.
    def reclaim = @allocators.each(&:reclaim)

    # New code serves. To be called again, as requests end.
    #
    # @param busy [Integer] how many requests still run here.
    def retire(now, busy)
      @left_at ||= now
      @allocators.each { |allocator| allocator.lend_all_but(busy) }
    end

    # @return [Messages::RetainedConnections]
    def retained
      servers = []
      each_known { |allocator, known| servers << [known, allocator.retained] }
      Messages::RetainedConnections.new(supervisor: Process.pid, servers:, rest: @left_at ? 0 : @limit)
    end

    # @return [Boolean] whether nothing is left to wait for: a database closes its sides a little after its clients end.
    def finished?(now) = @left_at.nil? || @allocators.sum(&:used).zero? || now - @left_at > LAST

    private

    # @yieldparam server [Integer] its number.
    # @yieldparam count [Integer] how many connections are needed in all, of which older supervisors retain some.
    def each_request(now)
      return if @elsewhere.empty? || now - @requested_at < REQUEST_INTERVAL

      each_known do |allocator, known|
        next unless (count = allocator.requested).positive?

        @requested_at = now
        yield known, count
      end
    end

    # Those to which workers have connected.
    def each_known = @pages.first.databases.zip(@allocators) { |known, allocator| yield allocator, known unless known.zero? }
  end
end
