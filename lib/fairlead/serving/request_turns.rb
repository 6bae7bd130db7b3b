# frozen_string_literal: true

require_relative "turn"

module Fairlead
  # The fibers of a reactor's requests that can go on, since what they have waited for has happened: that of the oldest request goes
  # first.
  #
  # A request's rank is when it came, and more once it has used far more CPU time than requests usually do: one that never ends shares
  # the time with those that come after it.
  #
  # Only the reactor's own thread may call these methods.
  class RequestTurns
    # Seconds of CPU time that any request may use without losing its rank, and how many times the usual time.
    LEAST_FREE = 0.2
    FREE = 4
    # Seconds between two looks at what is usual.
    LEARN = 1
    # How many times as long as they compute requests may take: the thread waits for a processor, or one of them blocks.
    PREEMPTED = 8
    private_constant :LEAST_FREE, :FREE, :LEARN, :PREEMPTED

    # @param loop [Loop]
    # @param selector [Selector]
    def initialize(loop, selector)
      @loop = loop
      @selector = selector
      @queue = [] # the lowest rank first
      @ready = 0 # in this round
      @several = false
      @learnt_at = 0.0
      @free = LEAST_FREE
    end

    # @return [Boolean] whether none waits for its turn.
    def empty? = @queue.empty?

    # @return [Boolean] whether a request that comes now goes before all that wait for their turn.
    def behind_new? = (first = @queue.first) && first.rank > Clock.now

    # The scheduler looks for fibers that can go on.
    def begin_round
      @several = @ready > 1
      @ready = @queue.size
    end

    # The present fiber, whose wait has ended, waits for its turn.
    #
    # @param serving [ServingFiber] for which it works
    def await(serving)
      return if serving.request.nil? || alone?

      insert(turn = Turn.new(self, serving))
      turn.await(@selector)
    end

    # @param turn [Turn] not of the present fiber if the request is over: what it has left behind goes on at once
    def push(turn) = turn.serving.request.nil? || alone? ? turn.go_on : insert(turn)

    # Of the scheduler's own fiber, which has just looked for fibers that can go on: the oldest ones do so until it is to look again.
    #
    # @param others [Float] seconds of CPU time that fibers which wait for no turn have had: these have as much
    def run(others)
      now = Clock.now
      learn(now) if now - @learnt_at > LEARN
      most = others > Turns::SLICE ? others * PREEMPTED : Turns::SLICE
      computed = Clock.thread_cpu_without_gc if most > Turns::SLICE
      while (turn = @queue.shift)
        next unless turn.alive?

        turn.go_on
        took = Clock.now - now
        break if took >= most || (computed && took >= others && Clock.thread_cpu_without_gc - computed >= others)
      end
    end

    private

    # Whether at most one fiber could go on in the last round, and this is the first one that can in this round: it need not wait for its
    # turn, which costs some microseconds.
    def alone? = (@ready += 1) == 1 && !@several

    def insert(turn)
      rank = turn.rank = turn.serving.request.rank(@free)
      last = @queue.last
      return @queue.push(turn) if last.nil? || last.rank <= rank

      @queue.insert(@queue.bsearch_index { |other| other.rank > rank }, turn)
    end

    def learn(now)
      @learnt_at = now
      @free = [FREE * @loop.usual_cpu, LEAST_FREE].max
    end
  end
end
