# frozen_string_literal: true

require_relative "parts"

module Fairlead
  # The requests of a worker while `request_timeout` or `cancel_abandoned` is set. The core knows when the time of one is up,
  # and has answered its client by then, whoever turns the loop. What is done here is the rest: a request that waits is
  # told, at its wait, by the reactor whose fiber it has; one that blocks without Ruby's lock, as its call returns. One that
  # holds the lock or computes is told when it comes to wait, if ever.
  class Deadlines
    # A request, its fiber, and what is put on the ready list of its reactor when its time is up.
    class Running
      def initialize(request, loop)
        @request = request
        @loop = loop
        @fiber = Fiber.current
        @scheduler = Fiber.scheduler
      end

      # It has ended: its fiber may have another request by now.
      def over! = @request = nil

      # (see Fairlead.request_timeout=)
      def limit(seconds) = @request&.limit_time(seconds)

      # From any thread. Before the one that blocks runs anything else, it takes what was raised.
      def tell
        thread = @loop.blocked_by(@fiber) or return @scheduler.unblock(nil, self)
        thread.raise(*error) unless over?
      end

      def alive? = @fiber.alive?

      # In the loop's own fiber of its reactor.
      def transfer(*) = (@fiber.raise(*error) unless over?)

      private

      # Once its response is over, only callbacks are left: they end in peace.
      def over? = @request.nil? || @request.answered?

      def error
        return [ClientGone, "the client has gone (cancel_abandoned)"] unless @request.timed_out?

        [RequestTimeout, "the request has taken longer than it may (request_timeout)"]
      end
    end
    private_constant :Running

    # Of fiber storage: tasks and threads that a request starts inherit it.
    KEY = :fairlead_deadline
    private_constant :KEY

    # @return [Running, nil] the present request.
    def self.present = Fiber[KEY]

    # @param loop [Loop]
    def initialize(loop)
      @loop = loop
      @running = {}
    end

    # Answers a request, in a serving fiber.
    def during(request)
      id = request.id
      running = Fiber[KEY] = @running[id] = Running.new(request, @loop)
      yield
    ensure
      running.over!
      @running.delete(id)
    end

    # Of the driver, after each turn: tells those whose time is up.
    #
    # @return [Boolean] whether there were any.
    def tell
      told = false
      while (id = @loop.overdue)
        @running[id]&.tell
        told = true
      end
      told
    end
  end
end
