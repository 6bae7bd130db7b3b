# frozen_string_literal: true

require_relative "../parts"

module Fairlead
  # The requests of a worker while `request_timeout` or `cancel_abandoned` is set. The core knows when the time of a request is
  # up, and has answered its client by then. What is left is to raise the exception in the request's fiber: where it waits, or at
  # its next wait. Nothing is raised in code that computes, or inside a call that blocks: a fork, a free or a held lock would be
  # cut short anywhere.
  class RequestDeadlines
    # A request that runs, and its fiber. On the ready list of its reactor, it raises in that fiber.
    class Running
      # @param cancels_abandoned [Boolean]
      def initialize(request, cancels_abandoned)
        @request = request
        @cancels_abandoned = cancels_abandoned
        @fiber = Fiber.current
        @scheduler = Fiber.scheduler
        @interrupted = false
      end

      # @return [Boolean] whether it is interrupted when its client has gone.
      attr_reader :cancels_abandoned

      # The request has ended: its fiber may have another one by now.
      def finished! = @request = nil

      # (see Fairlead.request_timeout=)
      def limit(seconds) = @request&.limit_time(seconds)

      # Has the current fiber, of a task that does the request's work, interrupted as well.
      #
      # @yieldparam error [Exception]
      # @yieldreturn [Exception] what to raise in it
      def share(&exception) = (@shared ||= {})[Fiber.current] = exception

      # Safe in any thread: its reactor comes to its ready list when the request waits.
      def interrupt = @scheduler.unblock(nil, self)

      # @return [Boolean] whether its time was up before it ran.
      def late? = @request.timed_out? || (@cancels_abandoned && @request.gone?)

      def alive? = @fiber.alive?

      # In the scheduler's own fiber. A request is interrupted once. After its response, only callbacks are left, and they end in
      # peace.
      def transfer(*)
        return if @interrupted || finished?

        @interrupted = true
        error = error(@request)
        shared = @shared
        raise_in(@fiber, error) { finished? }
        shared&.each { |fiber, exception| raise_in(fiber, exception.call(error)) }
      end

      private

      def finished? = @request.nil? || @request.answered?

      # Held back in an uninterruptible section, it may come too late.
      def raise_in(fiber, error, &finished)
        fiber.raise(Uninterruptible::Scope.new(error, &finished)) if fiber.alive?
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

    class << self
      # @return [Running, nil] the current request.
      def current = Fiber[KEY]

      # @return [RequestDeadlines, nil] nil: the configuration asks for none.
      def for(loop, configuration)
        return unless configuration.request_timeout || configuration.cancel_abandoned

        new(loop, cancels_abandoned: configuration.cancel_abandoned)
      end
    end

    # @param loop [Loop]
    # @param cancels_abandoned [Boolean] as the option says
    def initialize(loop, cancels_abandoned:)
      @loop = loop
      @cancels_abandoned = cancels_abandoned
      @running = {}
    end

    # Answers a request, in a serving fiber.
    def during(request)
      id = request.id
      running = Fiber[KEY] = @running[id] = Running.new(request, @cancels_abandoned)
      running.interrupt if running.late?
      yield
    ensure
      running.finished!
      @running.delete(id)
    end

    # Interrupts the requests whose time is up. Called by the driver, after each turn of the loop.
    #
    # @return [Boolean] whether there were any.
    def interrupt_expired
      any = false
      while (id = @loop.expired)
        @running[id]&.interrupt
        any = true
      end
      any
    end
  end
end
