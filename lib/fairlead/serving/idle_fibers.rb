# frozen_string_literal: true

module Fairlead
  # The serving fibers of a reactor that rest. The last one that came to rest is the first to go on, so that those that nobody
  # needs end.
  class IdleFibers
    # Up to as many are left alone. Once more rest, all that nobody needed end but one.
    KEPT = 8
    # Seconds after which those that nobody needed meanwhile end.
    TRIM = 3
    private_constant :KEPT, :TRIM

    # @param reactor [Reactor]
    def initialize(reactor)
      @reactor = reactor
      @scheduler = reactor.scheduler
      @fibers = []
      @fewest = 0
    end

    # @param fiber [ServingFiber]
    def push(fiber) = @fibers.push(fiber)

    # @return [ServingFiber, nil]
    def pop
      fiber = @fibers.pop
      @fewest = @fibers.size if @fibers.size < @fewest
      fiber
    end

    # @param fiber [ServingFiber]
    def delete(fiber) = @fibers.delete(fiber)

    def size = @fibers.size

    # Has those that nobody needed end after a while.
    def trim_later
      return if @trimming || size <= KEPT

      @trimming = true
      @fewest = size
      @scheduler.after(TRIM) { trim }
    end

    private

    def trim
      @trimming = false
      @fibers.shift([@fewest - 1, 0].max).each(&:end_soon)
      trim_later
    end
  end
end
