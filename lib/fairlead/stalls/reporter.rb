# frozen_string_literal: true

# Loaded beforehand: loading waits, and a capture must not.
require_relative "culprit"
require_relative "snapshot"
require_relative "prompt"

module Fairlead
  class Stall
    # A thread of each worker that tells of its stalls: it sleeps until the watch thread has one.
    class Teller
      # Where a request's env lists what stalled in it.
      KEY = "fairlead.stalls"
      # As the reactors' (see Crew): nobody waits for it.
      PRIORITY = -3
      private_constant :PRIORITY

      # @param loop [Loop]
      # @param limit [Float] seconds: stalls of more than that are told.
      # @param mark [Boolean] whether requests shall know of their stalls (see {#stalls_of}).
      # @yieldparam stall [Stall] in a thread of its own
      def initialize(loop, limit:, mark: false, &tell)
        @loop = loop
        @limit = limit
        @mark = mark
        @tell = tell
        @captures = {} # by the number of the reactor
        @lasting = {}
        @io = IO.for_fd(loop.tell_stalls(limit * 1000, self), autoclose: false)
      end

      def start
        Prompt.watch
        @thread = Thread.new { run }
        @thread.name = "fairlead stalls"
        @thread.priority = PRIORITY
      end

      def stop = @thread&.kill&.join

      # Of the core: a stall goes on. Nothing of the stalled reactor runs until this has returned.
      #
      # @param wanted [Integer] of which kind the backtrace is: it is taken again if that turns out to be another.
      # @api private
      def capture(number, began, wanted, thread, fiber)
        before = @captures[number]
        return if (before&.began == began && before.wanted == wanted) || thread.equal?(@thread)

        env = Snapshot.env_of(fiber)
        capture = @captures[number] = Snapshot.new(began, wanted, thread, fiber, env)
        mark(env, number, capture) if @mark && env
      rescue StandardError => error # here nobody can be told
        @failure = error
      end

      # @param env [Hash] of a request that ends.
      # @return [Array<Stall>] what has stalled in it.
      def stalls_of(env)
        env.fetch(KEY, []).filter_map do |number, capture|
          next if Prompt.kept?(capture.began, capture.backtrace)

          stall = capture.stall
          facts = @loop.stall(number, capture.began) if stall.nil? || stall.lasting
          facts ? capture.to_stall(facts.merge(lasting: false)) : stall
        end.select { |stall| stall.seconds >= @limit * (stall.kind == "computing" ? 4 : 1) }
      end

      private

      def mark(env, number, capture)
        marks = env[KEY] ||= []
        marks.reject! { |other, earlier| other == number && earlier.began == capture.began }
        marks << [number, capture]
      end

      def run
        loop do
          @io.wait_readable
          @io.read_nonblock(8, exception: false)
          news = @loop.stalls # which also has backtraces taken
          learn
          news.each { |facts| tell(facts) }
          # Of those that were too short nothing is kept.
          @captures.to_a.each { |number, capture| @captures.delete(number) unless @loop.stall(number, capture.began) }
          failure, @failure = @failure, nil
          raise failure if failure
        rescue StandardError => error
          Log.say "A stall could not be told of. #{error.full_message(highlight: false)}"
        end
      end

      # Whatever a router says, its stalls are told.
      def learn
        @captures.values.each(&:learn)
      rescue StandardError => error
        @failure = error
      end

      def tell(facts)
        number, began = facts.values_at(:number, :began)
        return if facts[:lasting] && @lasting[number] == began

        @lasting[number] = began
        capture = @captures[number]
        stall = capture&.began == began ? capture.stall = capture.to_stall(facts) : Snapshot.stall(facts)
        @captures.delete(number) unless facts[:lasting]
        Prompt.kept?(began, stall.backtrace) ? leave_alone(began) : @tell.call(stall)
      end

      # What stood still since then was kept by a prompt, and does not stall by itself.
      def leave_alone(began) = Fairlead.page&.forget_routes(began)
    end
  end
end
