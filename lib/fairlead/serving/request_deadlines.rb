# frozen_string_literal: true

require_relative "../parts"

module Fairlead
  # The requests of a worker that may be cancelled: long-lived ones, and all while `request_timeout` or `cancel_abandoned` is set, or if
  # streams have longer than others when the server stops. The core knows when a request's time is up, and has answered its client by then,
  # or that its client has gone. What is left is to raise the exception in the request's fiber: where it waits, or at its next wait. Nothing
  # is raised in code that computes, or inside a call that blocks: a fork, a free or a held lock would be cut short anywhere.
  class RequestDeadlines
    # A request that runs, and its fiber. On the ready list of its reactor, it raises in that fiber.
    class Running
      # @param fiber [Fiber] that serves it, of the present thread
      # @param cancels_abandoned [Boolean]
      def initialize(request, fiber, cancels_abandoned)
        @request = request
        @cancels_abandoned = cancels_abandoned
        @fiber = fiber
        @scheduler = Fiber.scheduler
        @interrupted = false
      end

      # @return [Boolean] whether it is interrupted when its client has gone.
      attr_accessor :cancels_abandoned

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
        if request.stopped?
          ServerStopping.new("the server stops, and #{request.timed_out? ? "drain_timeout is over" : "its client connects again"}")
        elsif request.timed_out?
          RequestTimeout.new("the request has taken longer than it may (request_timeout)")
        else
          ClientGone.new("the client has gone (cancel_abandoned)")
        end
      end
    end
    private_constant :Running

    # Of fiber storage: tasks and threads that a request starts inherit it.
    KEY = :fairlead_deadline
    private_constant :KEY

    class << self
      # @return [Running, nil] the current request.
      def current = Fiber[KEY]

      # The same, where a task is to be interrupted with its request, which need not have a time limit.
      #
      # @return [Running, nil]
      def current! = current || ServingFiber.of(Fiber.current)&.start_deadline
    end

    # @param loop [Loop]
    # @param configuration [Configuration]
    def initialize(loop, configuration)
      @loop = loop
      @cancels_abandoned = configuration.cancel_abandoned
      @every_request = @cancels_abandoned || !configuration.request_timeout.nil? ||
                       configuration.longest_drain > configuration.drain_timeout
      @running = {}
    end

    # @return [Boolean] whether every request may be cancelled.
    def every_request? = @every_request

    # @return [Running, nil] nil: the present fiber does not work for the request, as in a thread of the app.
    def start(request)
      fiber = ServingFiber.of(Fiber.current)&.fiber or return
      running = Fiber[KEY] = @running[request.id] ||= Running.new(request, fiber, @cancels_abandoned == true && !request.mcp_call?)
      running.interrupt if running.late?
      running
    end

    # The request's response lives long: it is cancelled when its client has gone, unless the configuration forbids that, or it is a
    # call by MCP: there "disconnection SHOULD NOT be interpreted as the client cancelling its request" (Streamable HTTP).
    def begin_stream(request)
      return if @cancels_abandoned == false || request.mcp_call?

      running = @running[request.id] || start(request)
      return if running.nil? || running.cancels_abandoned

      running.cancels_abandoned = true
      running.interrupt if running.late?
    end

    def finish(request)
      @running.delete(request.id)&.finished! unless @running.empty?
    end

    # Interrupts the requests whose time is up. Called by the driver, after each turn of the loop.
    #
    # @return [Boolean] whether there were any.
    def interrupt_expired
      return false if @running.empty?

      any = false
      while (id = @loop.expired)
        @running[id]&.interrupt
        any = true
      end
      any
    end
  end
end
