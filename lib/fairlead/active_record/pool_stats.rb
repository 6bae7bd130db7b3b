# frozen_string_literal: true

require "fairlead/pool" # its gemspec may have defined the class, without its parts

module Fairlead
  module ActiveRecord
    # The figures of one connection pool, and the part of a timeout's message that names the holders and a remedy.
    class PoolStats
      # @return [PoolStats] of the pool.
      def self.of(pool) = pool.fairlead_stats

      # @return [Pool::Histogram] how long waiters that were served have waited.
      attr_reader :waits
      # @return [Pool::Histogram] how long connections were held.
      attr_reader :holds
      # @return [Integer] how many waiters timed out.
      attr_accessor :timeouts

      def initialize(pool)
        @pool = pool
        @waits = Fairlead::Pool::Histogram.new
        @holds = Fairlead::Pool::Histogram.new
        @timeouts = 0
      end

      # @return [Hash] see {ActiveRecord.stat}.
      def to_h(backtraces: false)
        now = Clock.now
        since = @pool.fairlead_waiters&.since
        stat = @pool.stat
        held = Fairlead::Pool::Report.holders(holders, now, backtraces:)
        held = held.map { |holder| { owner: holder[:fiber], **holder.slice(:seconds, :backtrace) } }
        {
          pool: @pool.db_config.name, role: @pool.role, shard: @pool.shard, size: stat[:size],
          connections: stat[:connections], in_use: held.size, idle: stat[:idle], waiting: stat[:waiting],
          oldest_wait: since ? now - since : 0.0, timeouts: @timeouts, waits: @waits.to_h, holds: @holds.to_h,
          holders: held
        }
      end

      # Called under the pool's lock.
      #
      # @param timeout [Float] seconds that a waiter has waited in vain.
      # @return [String] who holds the connections, and what can be done.
      def complaint(timeout)
        "#{name}: #{holders.size} of #{Limits.of(@pool)} in use, #{@pool.num_waiting_in_queue} waiting; " \
          "#{Fairlead::Pool::Report.sentence(holders, Clock.now)}. Hold connections only around the queries " \
          "(with_connection), #{Limits.lift(@pool)}, or wait longer than #{format("%.3g", timeout)} s " \
          "(checkout_timeout)."
      end

      private

      def name
        "Pool #{@pool.db_config.name.inspect} (role #{@pool.role}#{", shard #{@pool.shard}" if @pool.shard != :default})"
      end

      # @return [Array<Array(Fiber, nil, Float)>] see {Pool::Report}.
      def holders
        @pool.connections.filter_map do |connection|
          owner = connection.owner # another thread may return it meanwhile
          [owner, nil, connection.fairlead_checked_out_at] if owner
        end
      end
    end
  end
end
