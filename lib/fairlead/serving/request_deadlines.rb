# frozen_string_literal: true

require_relative "../parts"

module Fairlead
  # The requests of a worker while `request_timeout` or `cancel_abandoned` is set. The core knows when the time of one is up,
  # and has answered its client by then. What is left to do here is to raise the exception in the request's fiber: where it
  # waits, or at its next wait. Nothing is raised in code that computes, or inside a call that blocks: who forks, frees, or
  # holds a lock there would be cut short anywhere.
  class RequestDeadlines
    # A request and its fiber. On the ready list of its reactor, it raises in that fiber.
    class Running
      # @param cancels_abandoned [Boolean]
      def initialize(request, cancels_abandoned)
        @request = request
        @cancels_abandoned = cancels_abandoned
        @fiber = Fiber.current
        @scheduler = Fiber.scheduler
        @told = false
      end

      # @return [Boolean] whether it is told when its client has gone.
      attr_reader :cancels_abandoned

      # It has ended: its fiber may have another request by now.
      def over! = @request = nil

      # (see Fairlead.request_timeout=)
      def limit(seconds) = @request&.limit_time(seconds)

      # The present fiber, of a task, does the request's work: it is told as well.
      #
      # @yieldparam error [Exception]
      # @yieldreturn [Exception] what to raise in it
      def share(&exception) = (@shared ||= {})[Fiber.current] = exception

      # Safe in any thread: its reactor comes to its ready list when the request waits.
      def tell = @scheduler.unblock(nil, self)

      # @return [Boolean] whether its time was up before anybody here knew the request.
      def late? = @request.timed_out? || (@cancels_abandoned && @request.gone?)

      def alive? = @fiber.alive?

      # In the loop's own fiber of its reactor. The request is told once; when its response is over, only callbacks are left,
      # and they end in peace.
      def transfer(*)
        return if @told || over?

        @told = true
        error = error(@request)
        shared = @shared
        raise_in(@fiber, error) { over? }
        shared&.each { |fiber, exception| raise_in(fiber, exception.call(error)) }
      end

      private

      def over? = @request.nil? || @request.answered?

      # Held back in an uninterruptible section, it may come too late.
      def raise_in(fiber, error, &over)
        fiber.raise(Uninterruptible::Scope.new(error, &over)) if fiber.alive?
      end

      def error(request)
        return ClientGone.new("the client has gone (cancel_abandoned)") unless request.timed_out?

        RequestTimeout.new("the request has taken longer than it may (request_timeout)")
      end
    end
    private_constant :Running

    # Of fiber storage: tasks and threads that a request starts inherit it.
    KEY = :fairlead_deadline
    private_constant :KEY

    # @return [Running, nil] the present request.
    def self.present = Fiber[KEY]

    # @param loop [Loop]
    # @param cancels_abandoned [Boolean] as the option says
    def initialize(loop, cancels_abandoned: false)
      @loop = loop
      @cancels_abandoned = cancels_abandoned
      @running = {}
    end

    # Answers a request, in a serving fiber.
    def during(request)
      id = request.id
      running = Fiber[KEY] = @running[id] = Running.new(request, @cancels_abandoned)
      running.tell if running.late?
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
