# frozen_string_literal: true

# Loaded now: loading waits, and a snapshot must not.
require_relative "culprit"
require_relative "snapshot"
require_relative "prompt"

module Fairlead
  class Stall
    # A thread of each worker that reports its stalls. It sleeps until the watch thread has noticed one.
    class Reporter
      # Where a request's env lists its stalls.
      KEY = "fairlead.stalls"
      # As the reactors': nothing waits for this thread.
      PRIORITY = -3
      private_constant :PRIORITY

      # @param loop [Loop]
      # @param limit [Float] seconds; longer stalls are reported.
      # @param env_of [#call] returns the env of the request that a fiber works for, or nil.
      # @param mark [Boolean] whether to list the stalls of a request in its env (see {#stalls_of}).
      # @yieldparam stall [Stall] in a thread of its own
      def initialize(loop, limit:, env_of:, mark: false, &report)
        @loop = loop
        @limit = limit
        @env_of = env_of
        @mark = mark
        @report = report
        @snapshots = {} # by the number of the reactor
        @lasting = {}
        @io = IO.for_fd(loop.report_stalls(limit * 1000, self), autoclose: false)
      end

      def start
        Prompt.watch
        @thread = Thread.new { run }
        @thread.name = "fairlead stalls"
        @thread.priority = PRIORITY
      end

      def stop = @thread&.kill&.join

      # The core calls this while a stall goes on. The stalled reactor runs nothing until it returns.
      #
      # @param wanted [Integer] the kind of stall for which the backtrace is; the core asks again if the kind changes.
      # @api private
      def capture(number, began, wanted, thread, fiber)
        before = @snapshots[number]
        return if (before&.began == began && before.wanted == wanted) || thread.equal?(@thread)

        env = @env_of.call(fiber)
        snapshot = @snapshots[number] = Snapshot.new(began, wanted, thread, fiber, env)
        mark(env, number, snapshot) if @mark && env
      rescue StandardError => error # logged by the reporter's own thread
        @failure = error
      end

      # @param env [Hash] of a request that ends.
      # @return [Array<Stall>] its stalls.
      def stalls_of(env)
        env.fetch(KEY, []).filter_map do |number, snapshot|
          next if Prompt.caused?(snapshot.began, snapshot.backtrace)

          stall = snapshot.stall
          facts = @loop.stall(number, snapshot.began) if stall.nil? || stall.lasting
          facts ? snapshot.to_stall(facts.merge(lasting: false)) : stall
        end.select { |stall| stall.seconds >= @limit * (stall.kind == "computing" ? 4 : 1) }
      end

      private

      def mark(env, number, snapshot)
        marks = env[KEY] ||= []
        marks.reject! { |other, earlier| other == number && earlier.began == snapshot.began }
        marks << [number, snapshot]
      end

      def run
        loop do
          @io.wait_readable
          @io.read_nonblock(8, exception: false)
          stalls = @loop.stalls # which also takes snapshots
          learn_routes
          stalls.each { |facts| report(facts) }
          # The stalls of these snapshots were too short.
          @snapshots.to_a.each { |number, snapshot| @snapshots.delete(number) unless @loop.stall(number, snapshot.began) }
          failure, @failure = @failure, nil
          raise failure if failure
        rescue StandardError => error
          Log.say "A stall could not be reported. #{error.full_message(highlight: false)}"
        end
      end

      # An error of the app's router must not keep stalls from being reported.
      def learn_routes
        @snapshots.values.each(&:learn_route)
      rescue StandardError => error
        @failure = error
      end

      def report(facts)
        number, began = facts.values_at(:number, :began)
        return if facts[:lasting] && @lasting[number] == began

        @lasting[number] = began
        snapshot = @snapshots[number]
        stall = snapshot&.began == began ? snapshot.stall = snapshot.to_stall(facts) : Snapshot.stall(facts)
        @snapshots.delete(number) unless facts[:lasting]
        Prompt.caused?(began, stall.backtrace) ? Fairlead.page&.forget_routes(began) : @report.call(stall)
      end
    end
  end
end
