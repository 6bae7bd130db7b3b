# frozen_string_literal: true

module Fairlead
  # The serving fibers of a reactor that rest. The last one that came to rest is the first to go on, so that those that nobody
  # needs end.
  class IdleFibers
    # Up to as many are left alone. Once more rest, all that nobody needed end but one.
    KEPT = 8
    # Spares beside streams: as many as there are new requests, up to these.
    MOST_SPARES = 128
    # Seconds after which those that nobody needed meanwhile end.
    TRIM = 3
    # Seconds until spares are made again after the system allowed no more fibers.
    PAUSE = 0.1
    private_constant :KEPT, :MOST_SPARES, :TRIM, :PAUSE

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

    def any? = !@fibers.empty?

    def size = @fibers.size

    # To be called in the scheduler's own fiber.
    #
    # @param wanted [Integer]
    def keep_spares(wanted)
      missing = wanted.clamp(KEPT, MOST_SPARES) - size
      return if missing <= 0 || (@none_before && Clock.now < @none_before)

      missing.times { @reactor.add_fiber(spare: true) unless @reactor.ending? }
    rescue FiberError # the system allows no more
      @none_before = Clock.now + PAUSE
    end

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
