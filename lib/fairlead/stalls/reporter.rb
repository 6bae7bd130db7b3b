# frozen_string_literal: true

# Loaded now: loading waits, and a snapshot must not.
require_relative "culprit"
require_relative "snapshot"
require_relative "prompt"

module Fairlead
  class Stall
    # A thread of each worker that reports its stalls. It sleeps until the watch thread has noticed one.
    class Reporter
      # As the reactors': nothing waits for this thread.
      PRIORITY = -3
      private_constant :PRIORITY

      @running = []

      class << self
        # @return [Array<Reporter>] of this process.
        # @api private
        attr_reader :running

        # What has been seen of a request's stalls and is not reported yet.
        #
        # @param env [Hash] of the request, which the calling fiber runs
        # @return [Array<Stall>]
        def unreported(env) = running.flat_map { |reporter| reporter.unreported(env) }
      end

      # @param loop [Loop]
      # @param limit [Float] seconds; longer stalls are reported.
      # @param env_of [#call] returns the env of the request that a fiber works for, or nil.
      # @yieldparam stall [Stall] in a thread of its own
      def initialize(loop, limit:, env_of:, &report)
        @loop = loop
        @limit = limit
        @env_of = env_of
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
        Reporter.running << self
      end

      def stop
        Reporter.running.delete(self)
        @thread&.kill&.join
      end

      # (see Reporter.unreported)
      def unreported(env)
        @snapshots.to_a.filter_map do |number, snapshot|
          facts = @loop.stall(number, snapshot.began) if snapshot.of?(env)
          snapshot.to_stall(facts) if facts&.fetch(:due)
        end
      end

      # The core calls this while a stall goes on. The stalled reactor runs nothing until it returns.
      #
      # @param asked [Integer] microseconds that the stall had lasted when the core asked. It asks again while the stall goes on.
      # @param wanted [Integer] the kind of stall for which the backtrace is.
      # @api private
      def capture(number, began, asked, wanted, thread, fiber)
        before = @snapshots[number].then { |snapshot| snapshot if snapshot&.began == began }
        return if before&.asked == asked || thread.equal?(@thread)

        @snapshots[number] = Snapshot.new(began, asked, wanted, thread, fiber, @env_of.call(fiber), before:)
      rescue StandardError => error # logged by the reporter's own thread
        @failure = error
      end

      private

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
        stall = snapshot&.began == began ? snapshot.to_stall(facts) : Snapshot.stall(facts)
        @snapshots.delete(number) unless facts[:lasting]
        return Fairlead.page&.forget_routes(began) if Prompt.caused?(began, stall.backtrace)

        notify(snapshot, stall) if snapshot&.began == began && !stall.lasting
        @report.call(stall)
      end

      # An error of a listener must not keep the stall from being reported.
      def notify(snapshot, stall)
        snapshot.notify(stall)
      rescue StandardError => error
        @failure = error
      end
    end
  end
end
