# frozen_string_literal: true

require_relative "request_turns"

module Fairlead
  # Shares a reactor's time between two classes: requests, and streams, which are responses that have begun and then wait, or that
  # live long by their nature.
  #
  # In each round of the scheduler, requests that can go on do so, oldest first ({RequestTurns}), new requests begin, and then streams
  # that can go on have their turn, oldest first. What one class uses beyond its share, the other gets in its next turns (deficit round
  # robin, Shreedhar and Varghese 1995). No class waits while the other has nothing to do.
  #
  # Only the reactor's own thread may call these methods.
  class Turns
    # Seconds that a turn lasts at least while there is work for it: of the clock for requests, of CPU time for streams.
    SLICE = 0.001
    # Seconds of CPU time that one class may owe the other at most.
    MOST_OWED = 0.1
    # Seconds of CPU time that a stream may owe the others: it lets them go first so many times. A round of a thousand streams that all
    # want more than there is takes seconds.
    MOST_DEBT = 2 * SLICE
    private_constant :MOST_OWED, :MOST_DEBT

    # @param share [Float] what part of the time streams get while both classes want all of it, above 0 and below 1
    # @param loop [Loop]
    # @param selector [Selector]
    def initialize(share, loop, selector)
      @rate = share / (1 - share)
      @loop = loop
      @selector = selector
      @queue = []
      @streams = 0
      @collected = GC.total_time
      @owed = 0.0 # seconds of CPU time that streams have had too few; below 0: too many
      @requests_turn = true
      @began_at = 0.0
      @requests = RequestTurns.new(loop, selector)
    end

    # @return [RequestTurns]
    attr_reader :requests

    # @return [Integer] how many responses of the reactor have begun and not ended.
    attr_accessor :streams

    # @return [Boolean] whether streams wait for their turn.
    def streams_queued? = !@queue.empty?

    # @return [Boolean] whether requests that have begun, or streams, wait for their turn.
    def queued? = !@requests.empty? || !@queue.empty?

    # Requests that can go on do so from here on.
    def begin_round
      @requests_turn = true
      @requests.begin_round
      @since = nil if @queue.empty? # while no stream has anything to do, requests owe them nothing
    end

    # Of the scheduler's own fiber: the oldest requests that can go on do so, unless those that have just come go before them.
    #
    # @param others [Float] seconds of CPU time that fibers which wait for no turn have had in this round: those that yield, or have read
    def run_requests(others = 0.0)
      return if @requests.empty? || (@requests.behind_new? && new_requests?)

      @began_at = 0.0 # new ones begin behind them
      @requests.run(others)
    end

    # New requests have their turn.
    def begin_requests = @began_at = Clock.now

    # @return [Boolean] whether new requests go before fibers that can go on.
    def slice_left? = @requests_turn && Clock.now - @began_at < SLICE

    # Of the scheduler's own fiber: streams have their turn, unless they have had too much and requests wait.
    def run_streams
      return if @queue.empty?

      now = Clock.thread_cpu
      @owed = [owed(now), MOST_OWED].min if @since
      @since = now
      return if @owed.negative? && (!@requests.empty? || new_requests?)

      @requests_turn = false
      @owed = 0.0 if @owed.negative? && @loop.takeable.zero?
      run_queue(now, now + SLICE)
      give_way_to_leader if @loop.leader_waits?
    end

    # Asked of a fiber that waits: a response that has begun becomes a stream.
    #
    # @param serving [ServingFiber] for which it works
    # @return [Turns, RequestTurns] where it then waits for its turn.
    def queue_of(serving) = serving.stream? ? self : @requests

    # (see RequestTurns#await)
    def await(serving)
      push(turn = Turn.new(self, serving))
      turn.await(@selector)
    end

    # @param turn [Turn] of a stream
    def push(turn)
      turn.serving.debt = 0 if @queue.empty?
      @queue.push(turn)
    end

    private

    def new_requests? = @loop.takeable.positive? && @loop.leads?

    # What streams are owed once requests have had the time since the last turn of streams.
    def owed(now) = @owed + ((now - @since) * @rate)

    # The reactor that leads by now has requests, and waits for Ruby's lock.
    def give_way_to_leader
      before = Clock.now
      Thread.pass
      @owed = [@owed + ((Clock.now - before) * @rate), MOST_OWED].min unless @queue.empty?
    end

    # @param ends_at [Float] when the turn may end, of the thread's CPU clock, as all times here
    def run_queue(now, ends_at)
      until @queue.empty? || (now >= ends_at && @owed <= 0)
        turn = @queue.shift
        next unless turn.alive?
        next if wait_longer?(turn)

        turn.go_on
        now = book(turn.serving, now)
      end
    ensure
      @owed = 0.0 if @owed.positive? && @queue.empty?
      @since = Clock.thread_cpu
    end

    # A stream that has computed for longer than others lets them go first, once for each slice.
    def wait_longer?(turn)
      return false if turn.serving.debt < SLICE || @queue.empty?

      turn.serving.debt -= SLICE
      @queue.push(turn)
    end

    def book(stream, before)
      now = Clock.thread_cpu
      @owed = [@owed - (now - before), -MOST_OWED].max
      owe(stream, now - before - SLICE) if now - before > SLICE
      now
    end

    # The collector's time is nobody's: whose turn it comes in is chance.
    def owe(stream, seconds)
      collected = GC.total_time
      seconds -= (collected - @collected) / 1e9
      @collected = collected
      stream.debt = [stream.debt + seconds, MOST_DEBT].min if seconds.positive?
    end
  end
end
