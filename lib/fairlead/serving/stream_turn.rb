# frozen_string_literal: true

module Fairlead
  # One wake-up of a stream's fiber, which then waits for the turn of streams. On the scheduler's ready list it stands for the fiber.
  class StreamTurn
    # @return [Fiber]
    attr_reader :fiber
    # @return [ServingFiber] whose response it is.
    attr_reader :stream

    # @param turns [Turns]
    # @param stream [ServingFiber]
    # @param fiber [Fiber] of its, which is about to wait
    def initialize(turns, stream, fiber)
      @turns = turns
      @stream = stream
      @fiber = fiber
      @waits = fiber.fairlead_waits
      @queued = @over = false
    end

    # @return [Boolean] whether the fiber is still in that wait.
    def alive? = @fiber.fairlead_waits == @waits && @fiber.alive?

    # @return [Boolean] whether its turn has come.
    def over? = @over

    # What the fiber waits for has happened.
    #
    # @param result [false, nil] what the wait returns; false: its time is over
    def transfer(result = nil)
      return if @queued

      @queued = true
      @result = result
      @turns.push(self)
    end

    # Its turn has come.
    def go_on
      @over = true
      @fiber.transfer(@result)
    end

    # The wait has ended, in whatever way.
    def forget = @fiber.fairlead_waits = @waits.to_i + 1
  end
end
