# frozen_string_literal: true

module Fairlead
  # One wake-up of a fiber that works for a request, which then waits for its turn among others of its class (see {Turns}). On the
  # scheduler's ready list it stands for the fiber.
  class Turn
    # @return [ServingFiber] for which the fiber works.
    attr_reader :serving
    # @return [Float] the lowest goes first, among requests.
    attr_accessor :rank

    # @param queue [Turns, RequestTurns] of its class
    # @param serving [ServingFiber]
    # @param fiber [Fiber] of its, which waits
    def initialize(queue, serving, fiber = Fiber.current)
      @queue = queue
      @serving = serving
      @fiber = fiber
      @waits = fiber.fairlead_waits
      @happened = @over = false
    end

    # @return [Boolean] whether the fiber is still in that wait.
    def alive? = @fiber.fairlead_waits == @waits && @fiber.alive?

    # What the present fiber waits for has happened, and the queue knows. It goes on in its turn.
    #
    # @param selector [Selector]
    def await(selector)
      selector.transfer_to_loop until @over
    ensure
      @fiber.fairlead_waits = @waits.to_i + 1
    end

    # What the fiber waits for has happened.
    #
    # @param result [false, nil] what the wait returns; false: its time is over
    def transfer(result = nil)
      return if @happened

      @happened = true
      @result = result
      @queue.push(self)
    end

    # Its turn has come.
    def go_on
      @over = true
      @fiber.transfer(@result)
    end
  end
end
