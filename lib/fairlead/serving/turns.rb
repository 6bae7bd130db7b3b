# frozen_string_literal: true

module Fairlead
  # Shares the rounds of a reactor's scheduler between new requests and the fibers that can go on.
  #
  # New requests have a slice of each round; then fibers that can go on do so first. Beside streams that would leave new requests one
  # turn in a long round: hundreds of streams, whose wake-ups are short each, would take all. So streams and new requests take turns
  # within the round, of the same length.
  class Turns
    # Seconds of new requests in each round, and the shortest turn of streams.
    SLICE = 0.001
    # Seconds that streams may have at a time, though a request before them took longer.
    LONGEST = 0.05
    private_constant :SLICE, :LONGEST

    def initialize
      @streams = 0
      @ended_at = @took = 0.0
    end

    # @return [Integer] how many streams the reactor serves.
    attr_accessor :streams

    # New requests have all of their slice again.
    def begin_round = @began_at = nil

    # @return [Boolean] whether new requests go before fibers that can go on.
    def slice_left?
      now = Clock.now
      now - (@began_at ||= now) < SLICE
    end

    # New requests have their turn.
    def begin_requests = (@began_at = Clock.now if @streams.positive?)

    # New requests have had their turn: streams come next, for as long.
    def end_requests
      return unless @streams.positive?

      @ended_at = Clock.now
      @took = @began_at ? [@ended_at - @began_at, LONGEST].min : 0.0
    end

    # Asked in a fiber that waits. If it belongs to a stream and streams have had their turn, that of new requests begins.
    #
    # @return [Boolean]
    def of_requests?
      now = Clock.now
      return false unless now - @ended_at > [@took, SLICE].max && ServingFiber.of(Fiber.current)&.stream

      @began_at = now
      true
    end
  end
end
