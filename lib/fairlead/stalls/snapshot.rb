# frozen_string_literal: true

module Fairlead
  class Stall
    # What is seen of a stall while it goes on: the backtrace, and the request. Taken with Ruby's lock, perhaps within
    # the stalled code itself: it waits for nothing, and takes no lock.
    class Snapshot
      # Frames, beyond which a backtrace is of no use, and takes long.
      DEPTH = 150
      private_constant :DEPTH

      # @return [Integer] when the stall began, on the core's clock.
      attr_reader :began
      # @return [Integer] for which kind of time it was taken.
      attr_reader :wanted
      # @return [Array<String>]
      attr_reader :backtrace
      # @return [Stall, nil] once it is known.
      attr_accessor :stall

      # @param thread [Thread] the one that stalls
      # @param fiber [Fiber] the one that it runs
      # @param env [Hash, nil] of the request that it works for
      def initialize(began, wanted, thread, fiber, env)
        @began = began
        @wanted = wanted
        @env = env
        @backtrace = Blame.trim((thread.backtrace(0, DEPTH) || []).drop_while { |line| line.start_with?(__dir__) })
        @thread = thread.name || thread.inspect unless env || fiber.fairlead_seat || fiber.async_task # not of those that serve
      end

      # @param facts [Hash] as the core knows them.
      # @return [Stall]
      def to_stall(facts)
        Snapshot.stall(facts, backtrace: @backtrace, thread: @thread, **(@env ? request : {}))
      end

      # Has the core know the route of its request, as soon as the app's router does: the next of the kind may come before
      # this one ends.
      def learn
        @learnt ||= @env.nil? || RailsRoutes.learn(@env)
      end

      # A stall of which no more is known than the core does.
      #
      # @return [Stall]
      def self.stall(facts, pid: Process.pid, backtrace: [], thread: nil, method: nil, path: nil, request_id: nil, action: nil)
        blame = Blame.new(backtrace)
        route = Fairlead.escape((Fairlead.page || Fairlead).route(method, path)) if method
        lane, name = lane_of(route)
        Stall.new(
          **facts.slice(:seconds, :lasting, :kind, :standby, :handed, :relief),
          id: "#{pid}-#{facts[:number]}-#{facts[:began]}", pid:, time: time(facts[:began]),
          receiver: receiver(facts[:sibling]), backtrace:, thread:, method:, path: legible(path), request_id: legible(request_id),
          action: action || name, route:, lane:, at: blame.at, gem: blame.gem
        )
      end

      # @return [Hash, nil] of the request that a fiber works for: it stalls in the name of who began it.
      def self.env_of(fiber) = Reactor.request_of(fiber)&.env

      # A client may send any bytes.
      def self.legible(text) = (Fairlead.escape(text) if text)

      def self.time(began)
        Time.now.to_f - Process.clock_gettime(Process::CLOCK_MONOTONIC) + began / 1e6
      end

      def self.receiver(slot)
        Fairlead.page.read(slot)[:pid] if slot >= 0 && Fairlead.page
      end

      # By now it is known what became of its route, and perhaps what the app calls it.
      def self.lane_of(route)
        found = Fairlead.page&.routes&.find { |known| known[:route] == route } if route
        [(found[:lane].to_s if found[:lane] != :none), found[:action]] if found
      end
      private_class_method :legible, :time, :receiver, :lane_of

      private

      # Asked when it is told: by then the app may know more of its request.
      def request
        { method: @env["REQUEST_METHOD"], path: @env["PATH_INFO"], action: RailsRoutes.action_of(@env),
          request_id: @env["action_dispatch.request_id"] || @env["HTTP_X_REQUEST_ID"] }
      end
    end
  end
end
