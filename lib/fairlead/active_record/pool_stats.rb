# frozen_string_literal: true

require_relative "../pool" # its gemspec may have defined the class, without its parts

module Fairlead
  module ActiveRecord
    # What is counted of one connection pool, and said of it: in figures, and in the errors of those who waited too
    # long.
    class Usage
      # Holders in an error's message; the rest are counted.
      SHOWN = 5
      # Where a holder is, is a line of the app's, if any is.
      LIBRARIES = %r{/gems/|/lib/fairlead/|<internal:|/lib/ruby/}
      private_constant :SHOWN, :LIBRARIES

      # @return [Usage] of the pool.
      def self.of(pool) = pool.fairlead_usage

      # @return [Pool::Histogram] of those who waited and were served.
      attr_reader :waits
      # @return [Pool::Histogram] how long connections were held.
      attr_reader :holds
      # @return [Integer] how many waited in vain.
      attr_accessor :timeouts

      def initialize(pool)
        @pool = pool
        @waits = Fairlead::Pool::Histogram.new
        @holds = Fairlead::Pool::Histogram.new
        @timeouts = 0
      end

      # @return [Hash] see {ActiveRecord.stat}.
      def to_h(backtraces: false)
        now = Line.clock
        held = holders
        oldest = @pool.fairlead_line&.oldest
        stat = @pool.stat
        {
          pool: @pool.db_config.name, role: @pool.role, shard: @pool.shard, size: stat[:size],
          connections: stat[:connections], in_use: held.size, idle: stat[:idle], waiting: stat[:waiting],
          oldest_wait: oldest ? now - oldest.since : 0.0, timeouts: @timeouts, waits: @waits.to_h, holds: @holds.to_h,
          holders: held.map { |owner, since| holder(owner, since, now, backtraces) }
        }
      end

      # @param timeout [Float] seconds that one has waited in vain.
      # @return [String] who holds the connections, and what can be done. Called under the pool's lock.
      def complaint(timeout)
        now = Line.clock
        held = holders
        sentences = held.first(SHOWN).map { |owner, since| sentence(owner, since, now) }
        sentences << "and #{held.size - SHOWN} more" if held.size > SHOWN
        "#{name}: #{held.size} of #{Limits.of(@pool)} in use, #{@pool.num_waiting_in_queue} waiting" \
          "#{"; held by #{sentences.join(", ")}" if sentences.any?}. Hold connections only around the queries " \
          "(with_connection), #{Limits.remedy(@pool)}, or wait longer than #{format("%.3g", timeout)} s " \
          "(checkout_timeout)."
      end

      private

      def name
        "Pool #{@pool.db_config.name.inspect} (role #{@pool.role}#{", shard #{@pool.shard}" if @pool.shard != :default})"
      end

      # @return [Array<Array(Fiber, Float)>] owner and since when, the longest first.
      def holders
        held = @pool.connections.filter_map { |connection| [connection.owner, connection.fairlead_since] if connection.owner }
        held.sort_by { |_, since| since || Float::INFINITY }
      end

      def holder(owner, since, now, backtraces)
        entry = { owner:, seconds: since ? now - since : 0.0 }
        entry[:backtrace] = backtrace(owner) if backtraces
        entry
      end

      def sentence(owner, since, now)
        place = backtrace(owner).find { |line| !LIBRARIES.match?(line) }
        held = since ? " for #{format("%.3g", now - since)} s" : ""
        "#{owner.class.name.downcase} #{format("0x%x", owner.object_id)}#{held}#{", now at #{place}" if place}"
      end

      def backtrace(owner)
        owner.backtrace || []
      rescue FiberError, ThreadError
        []
      end
    end
  end
end
