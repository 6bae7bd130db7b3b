# frozen_string_literal: true

module Fairlead
  class Stall
    # The stalls of all workers, by route and place, with the worst of each; and which of them are logged.
    class Aggregator
      # The most routes and places that are kept.
      MOST = 100
      # Each entry is logged at most once in so many seconds, and all together at most LINES times.
      INTERVAL = 60
      LINES = 30
      private_constant :MOST, :INTERVAL, :LINES

      # @!attribute count [Integer]
      # @!attribute total [Float] seconds of all stalls together.
      # @!attribute worst [Stall] the longest.
      # @!attribute logged_at [Float, nil]
      # @!attribute unlogged [Integer] stalls since then.
      # @!attribute lasting [Stall, nil] the latest one, if it goes on.
      Entry = Struct.new(:count, :total, :worst, :logged_at, :unlogged, :lasting) do
        def to_h = { count:, total:, **worst.to_h, advice: worst.advice, reaction: worst.reaction }
      end
      private_constant :Entry

      def initialize
        @entries = {}
        @lines = []
      end

      # @param stall [Stall]
      # @param now [Float] of the monotonic clock
      # @return [String, nil] a line for the log; nil: the log has had enough.
      def add(stall, now: Clock.now)
        withdraw(stall)
        entry = @entries[key(stall)] ||= Entry.new(0, 0.0, stall, nil, 0, nil)
        known = entry.lasting
        entry.total += stall.seconds - (known&.id == stall.id ? known.seconds : 0)
        entry.worst = stall if stall.seconds >= entry.worst.seconds
        entry.lasting = stall.lasting ? stall : nil
        return if known&.id == stall.id # it was reported while it went on

        entry.count += 1
        forget_least
        line(entry, stall, now)
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
        other, entry = @entries.find { |place, known| place != own && known.lasting&.id == stall.id }
        return @entries.delete(other) if entry.nil? || entry.count == 1

        entry.count -= 1
        entry.total -= entry.lasting.seconds
        entry.lasting = nil
      end

      def key(stall) = [stall.route || stall.thread, stall.at, stall.kind]

      def forget_least
        @entries.delete(@entries.min_by { |_, entry| entry.total }.first) if @entries.size > MOST
      end

      def line(entry, stall, now)
        @lines.shift while @lines.any? && now - @lines.first > INTERVAL
        if (entry.logged_at && now - entry.logged_at < INTERVAL) || @lines.size >= LINES
          entry.unlogged += 1
          return
        end

        @lines << now
        entry.logged_at = now
        more, entry.unlogged = entry.unlogged, 0
        more.zero? ? stall.to_s : "#{stall} (#{more} more of these since the last line.)"
      end
    end
  end
end
