# frozen_string_literal: true

module Fairlead
  class Stall
    # The backtrace and the request of a stall, taken while it goes on, perhaps within the stalled code itself. Taking it holds
    # Ruby's lock, waits for nothing, and takes no other lock. A long stall has several: it is told of the place that took most of it.
    class Snapshot
      # The most frames of a backtrace: more are of no use, and take long.
      DEPTH = 150
      # The most snapshots of a stall that are kept: if the core asks no more often than the stall grows, one of an hour has half of them.
      MOST = 100
      private_constant :DEPTH, :MOST
      # The key of an env whose value, if there is one, is called with each stall of its request.
      LISTENER = "fairlead.stall_listener"

      # @return [Integer] when the stall began, on the core's clock.
      attr_reader :began
      # @return [Integer] microseconds that the stall had lasted when the core asked for it.
      attr_reader :asked
      # @return [Integer] the kind of stall for which it was taken.
      attr_reader :wanted
      # @return [Array<String>]
      attr_reader :backtrace
      # @return [Array<Snapshot>] of this stall, the latest one last. They share it.
      attr_reader :series

      # @param thread [Thread] that stalls
      # @param fiber [Fiber] that it runs
      # @param env [Hash, nil] of the request that the fiber works for
      # @param before [Snapshot, nil] the one before of this stall
      def initialize(began, asked, wanted, thread, fiber, env, before: nil)
        @began = began
        @asked = asked
        @wanted = wanted
        @since = before ? before.asked : 0
        @series = before ? before.series : []
        @series << self
        @series.shift if @series.size > MOST
        @env = env
        @backtrace = Culprit.trim((thread.backtrace(0, DEPTH) || []).drop_while { |line| line.start_with?(__dir__) })
        @thread = thread.name || thread.inspect unless env || fiber.fairlead_serving_fiber || fiber.async_task # not for threads that serve
      end

      # @return [Boolean] whether the request of this env has stalled.
      def of?(env) = @series.any? { |one| env.equal?(one.env) } && env.equal?(typical.env)

      # Tells the request itself of its stall.
      #
      # @param stall [Stall]
      def notify(stall) = typical.env&.[](LISTENER)&.call(stall)

      # @param facts [Hash] from the core
      # @return [Stall]
      def to_stall(facts) = typical.tell(facts)

      # @return [Integer] microseconds of the stall that it stands for.
      def weight = @asked - @since

      # @return [String, nil] (see Culprit#at)
      def at = @at ||= Culprit.new(@backtrace).at

      # Tells the core the route as soon as the app's router has run: the next request of that route may come before this one ends.
      def learn_route
        @learnt ||= @env.nil? || RailsRoutes.learn(@env)
      end

      # Makes a stall of what the core knows, and what else is given.
      #
      # @return [Stall]
      def self.stall(facts, pid: Process.pid, backtrace: [], thread: nil, method: nil, path: nil, request_id: nil, action: nil)
        culprit = Culprit.new(backtrace)
        route = Fairlead.escape((Fairlead.page || Fairlead).route(method, path)) if method
        lane, name = lane_of(route)
        Stall.new(
          **facts.slice(:seconds, :lasting, :kind, :standby, :handed, :relief),
          id: "#{pid}-#{facts[:number]}-#{facts[:began]}", pid:, time: time(facts[:began]),
          receiver: receiver(facts[:sibling]), backtrace:, thread:, method:, path: legible(path), request_id: legible(request_id),
          action: action || name, route:, lane:, at: culprit.at, gem: culprit.gem
        )
      end

      # A client may send any bytes.
      def self.legible(text) = (Fairlead.escape(text) if text)

      def self.time(began)
        Time.now.to_f - Clock.now + began / 1e6
      end

      def self.receiver(slot)
        Fairlead.page.read(slot)[:pid] if slot >= 0 && Fairlead.page
      end

      # The page may know the lane of the route by now, and the app's name for it.
      def self.lane_of(route)
        found = Fairlead.page&.routes&.find { |known| known[:route] == route } if route
        [(found[:lane].to_s if found[:lane] != :none), found[:action]] if found
      end
      private_class_method :legible, :time, :receiver, :lane_of

      protected

      attr_reader :env, :thread

      def tell(facts) = Snapshot.stall(facts, backtrace: @backtrace, thread: @thread, **(@env ? request : {}))

      private

      # A thread of the app may have the lock while a request stalls: the snapshots of one stall may be of both.
      #
      # @return [Snapshot] of the place that took the most time of this kind.
      def typical
        same_kind = @series.select { |one| one.wanted == @wanted }
        same_kind.group_by { |one| [one.env.object_id, one.thread, one.at] }.values.max_by { |same| same.sum(&:weight) }&.last || self
      end

      # Read when the stall is reported: the app may know more of its request by then.
      def request
        { method: @env["REQUEST_METHOD"], path: @env["PATH_INFO"], action: RailsRoutes.action_of(@env),
          request_id: @env["action_dispatch.request_id"] || @env["HTTP_X_REQUEST_ID"] }
      end
    end
  end
end
