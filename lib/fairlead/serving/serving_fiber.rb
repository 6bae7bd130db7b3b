# frozen_string_literal: true

require_relative "../fiber_safety/attributes"

module Fairlead
  # One of the interchangeable fibers of a reactor. It serves one request after the other, drives the loop while it is the owner of
  # the {Lead} and there are no requests, and rests otherwise.
  class ServingFiber
    # The task of a serving fiber. A task that has left others behind ends, and they may hold it for long.
    class Task < Async::Task
      # Two tasks that stop this one after its end would each stop the other one's stopping, without end: the first does it.
      def cancel(...)
        return super if running?
        return if @cancelling

        begin
          @cancelling = true
          super
        ensure
          @cancelling = false
        end
      end

      # A node that leaves a list keeps its successor: whoever holds one ended task would hold all later ones.
      def consume
        super
        self.tail = nil unless parent
      end
    end

    class << self
      # @param fiber [Fiber] of a request; a child task, or an enumerator, works for the request of the fiber that began it.
      # @return [ServingFiber, nil]
      def of(fiber) = fiber.fairlead_serving_fiber || Fairlead.request_fiber(fiber)&.fairlead_serving_fiber

      # @return [Request, nil] that a fiber works for.
      def request_of(fiber) = of(fiber)&.request

      # The response of the present request has begun, and becomes a stream if its fiber waits from here on.
      def begins_response = Fiber.current.fairlead_serving_fiber&.begin_response

      # The response of the present request lives long: from here on its fiber has the turns of a stream.
      def becomes_stream = Fiber.current.fairlead_serving_fiber&.begin_response(:stream)
    end

    # @return [Fiber]
    attr_reader :fiber
    # @return [Request, nil] what its fiber is at work on.
    attr_reader :request
    # @return [Float] seconds that its stream has used beyond those of others.
    attr_accessor :debt
    # @return [ThreadVariables, nil] of its request, if that has any.
    attr_accessor :thread_variables

    # To be made in its fiber, in the task that it serves in.
    #
    # @param reactor [Reactor]
    # @param task [Task]
    # @param handler [#call] answers a request
    def initialize(reactor, task, handler)
      @reactor = reactor
      @scheduler = reactor.scheduler
      @lead = reactor.lead
      @turns = reactor.turns
      @task = task
      @handler = handler
      @fiber = Fiber.current
      @fiber.fairlead_serving_fiber = self
      @debt = 0
      FiberOwner.own_state
      @state = FiberState.new
    end

    # Its whole life, which begins with the lead.
    def run
      @lead.pass_to(self)
      act until @ending || @reactor.ended?
    ensure
      @lead.forget(self) unless @reactor.ending?
    end

    # @return [Boolean] whether the present fiber is this one.
    def current? = @fiber.equal?(Fiber.current)

    # Has it go on from its rest, instead of the present fiber.
    def resume
      @resumed = true
      @fiber.transfer
    end

    # Ends it, with the next round. It rests, and is no longer among the idle ones.
    def end_soon
      @ending = true
      @scheduler.push(self)
    end

    # (see RequestDeadlines.current!)
    def start_deadline = @request && @handler.deadlines.start(@request)

    # On the ready list, instead of its fiber: it is woken only from its rest.
    def alive? = @fiber.alive?

    # (see #alive?)
    def transfer(*) = resume

    # (see ServingFiber.begins_response)
    #
    # @param kind [Symbol] :begun, or :stream: it is one from here on
    def begin_response(kind = :begun)
      unless @response
        @turns.streams += 1
        @debt = 0
      end
      @response = kind unless @response == :stream
    end

    # Asked of a fiber that waits: a response that has begun and waits is a stream.
    #
    # @return [Boolean]
    def stream?
      @response = :stream if @response
      !@response.nil?
    end

    private

    # A method of its own: YJIT compiles methods that are called often, not loops that never end.
    def act
      if (request = @lead.take_request(self))
        serve(request)
        give_way unless @ending
      elsif @lead.drives?(self)
        @lead.drive
      else
        @lead.leave_to_others(self)
        rest
      end
    rescue Async::Cancel
      # A task of an earlier request, that has another parent, stops what was that request's.
      raise if @reactor.ending?
    end

    def serve(request)
      @request = request # the report of a stall looks there
      @handler.call(request)
    ensure
      @request = nil
      end_response if @response
      clean_up
    end

    def end_response
      @response = nil
      @turns.streams -= 1
    end

    # What was started first ends first: fibers that can go on do so before the owner takes new requests.
    def give_way
      rest if @scheduler.others? && @lead.owner?(self) && !@turns.slice_left?
    end

    def rest
      @resumed = false
      @reactor.idle.push(self)
      @reactor.selector.transfer_to_loop until @resumed
    ensure
      # Killed, or meant by an exception whose request is over.
      @reactor.idle.delete(self) unless @resumed
    end

    # The fiber is as it was at boot. Tasks that the request leaves behind go on with what they have inherited of it, and may
    # do to this fiber what they like: it ends, lest a later request gets it.
    def clean_up
      if @task.children?
        @ending = true
        @thread_variables = nil
      end
      @thread_variables&.clear
      Uninterruptible.forget(@fiber)
      @state.restore
    end
  end
end
