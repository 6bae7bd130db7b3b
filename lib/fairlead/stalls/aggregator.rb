# frozen_string_literal: true

module Fairlead
  class Stall
    # What has stalled in all workers, by route and place, the worst of each; and what of it goes into the log. Of the
    # supervisor.
    class Board
      # How many routes and places are remembered.
      MOST = 100
      # Seconds in which one of them makes no more than one line, and how many lines all together make.
      QUIET = 60
      LINES = 30
      private_constant :MOST, :QUIET, :LINES

      # @!attribute count [Integer]
      # @!attribute total [Float] seconds of all of them together.
      # @!attribute worst [Stall] the longest.
      Entry = Struct.new(:count, :total, :worst, :told_at, :untold, :lasting) do
        def to_h = { count:, total:, **worst.to_h, advice: worst.advice, reaction: worst.reaction }
      end
      private_constant :Entry

      def initialize
        @entries = {}
        @lines = []
      end

      # @param stall [Stall]
      # @param now [Float] monotonic
      # @return [String, nil] a line for the log; nil: there have been enough.
      def add(stall, now: Process.clock_gettime(Process::CLOCK_MONOTONIC))
        withdraw(stall)
        entry = @entries[key(stall)] ||= Entry.new(0, 0.0, stall, nil, 0, nil)
        known = entry.lasting
        entry.total += stall.seconds - (known&.id == stall.id ? known.seconds : 0)
        entry.worst = stall if stall.seconds >= entry.worst.seconds
        entry.lasting = stall.lasting ? stall : nil
        return if known&.id == stall.id # it was told while it went on

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

      # Of one that lasts it may not be known where, until it is over: then it is told as a new one.
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
        @lines.shift while @lines.any? && now - @lines.first > QUIET
        if (entry.told_at && now - entry.told_at < QUIET) || @lines.size >= LINES
          entry.untold += 1
          return
        end

        @lines << now
        entry.told_at = now
        more, entry.untold = entry.untold, 0
        more.zero? ? stall.to_s : "#{stall} (#{more} more of these since the last line.)"
      end
    end
  end
end
