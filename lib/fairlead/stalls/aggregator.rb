# frozen_string_literal: true

module Fairlead
  class Stall
    # The stalls of all workers, by route and place, with the worst of each; and which of them are logged.
    class Aggregator
      # The most routes and places that are kept.
      MOST = 100
      # Each route is logged at most once in so many seconds, and all together at most LINES times.
      INTERVAL = 60
      LINES = 30
      private_constant :MOST, :INTERVAL, :LINES

      # @!attribute count [Integer]
      # @!attribute total [Float] seconds of all stalls together.
      # @!attribute worst [Stall] the longest.
      # @!attribute lasting [Hash{Object => Stall}] those that go on, by their id: requests of several workers may block in one place.
      Entry = Struct.new(:count, :total, :worst, :lasting) do
        def to_h = { count:, total:, **worst.to_h, advice: worst.advice, reaction: worst.reaction }
      end
      # @!attribute at [Float] the time of a route's latest line.
      # @!attribute more [Integer] stalls since then.
      Logged = Struct.new(:at, :more)
      private_constant :Entry, :Logged

      def initialize
        @entries = {}
        @logged = {}
        @lines = []
      end

      # @param stall [Stall]
      # @param now [Float] of the monotonic clock
      # @return [String, nil] a line for the log; nil: the log has had enough.
      def add(stall, now: Clock.now)
        withdraw(stall)
        entry = @entries[key(stall)] ||= Entry.new(0, 0.0, stall, {})
        known = entry.lasting.delete(stall.id) # it was reported while it went on
        entry.total += stall.seconds - (known ? known.seconds : 0)
        entry.worst = stall if stall.seconds >= entry.worst.seconds || (known && known.equal?(entry.worst))
        keep(entry.lasting, stall) if stall.lasting
        return if known

        entry.count += 1
        forget_least
        line(stall, now)
      end

      # @param count [Integer]
      # @return [Array<Hash>] the longest first.
      def worst(count = MOST)
        @entries.values.sort_by { |entry| -entry.worst.seconds }.first(count).map(&:to_h)
      end

      private

      # The place of a lasting stall may only be known once it is over. It then has another entry.
      def withdraw(stall)
        own = key(stall)
        other, entry = @entries.find { |place, known| place != own && known.lasting.key?(stall.id) }
        return @entries.delete(other) if entry.nil? || entry.count == 1

        entry.count -= 1
        entry.total -= entry.lasting.delete(stall.id).seconds
      end

      # The end of one whose worker has been killed is never reported.
      def keep(lasting, stall)
        lasting[stall.id] = stall
        lasting.shift if lasting.size > MOST
      end

      def key(stall) = [route(stall), stall.at, stall.kind]

      # Code that computes is seen in another place each time.
      def route(stall) = stall.route || stall.thread

      def forget_least
        @entries.delete(@entries.min_by { |_, entry| entry.total }.first) if @entries.size > MOST
      end

      def line(stall, now)
        @lines.shift while @lines.any? && now - @lines.first > INTERVAL
        logged = @logged.delete(route(stall)) || Logged.new(-INTERVAL, 0)
        @logged.shift if @logged.size >= MOST
        @logged[route(stall)] = logged # the latest comes last
        if now - logged.at < INTERVAL || @lines.size >= LINES
          logged.more += 1
          return
        end

        @lines << now
        logged.at = now
        more, logged.more = logged.more, 0
        more.zero? ? stall.to_s : "#{stall} (#{more} more of these since the last line.)"
      end
    end
  end
end
