# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # Of ConnectionPool: closes connections for other workers, and those of dead owners, and lets the budget know.
    module Reaping
      # Seconds between two searches for connections whose owners have died.
      INTERVAL = 0.01
      private_constant :INTERVAL

      # Closes idle connections for other workers, unless somebody waits for one here.
      #
      # @return [Integer] how many.
      def fairlead_close_idle(most)
        Uninterruptible.run { fairlead_take_idle(most).each(&:disconnect!).size }
      end

      # @return [ConnectionAdapters::AbstractAdapter, nil] an open one, which leaves the pool.
      def fairlead_take_idle_connection
        fairlead_take_idle(1) { |connection| connection.connected? && connection.respond_to?(:fairlead_detach) }.first
      end

      private

      def fairlead_take_idle(most, &wanted)
        synchronize do
          next [] if discarded? || @available.num_waiting.positive?

          idle = @connections.reject(&:in_use?)
          idle.select!(&wanted) if wanted
          idle.first(most).each do |connection|
            connection.lease
            @available.delete(connection)
            @connections.delete(connection)
          end
        end
      end

      def fairlead_whole
        super do
          before = discarded? ? [] : connections
          yield
        ensure
          after = discarded? ? [] : connections
          (before - after).each { |connection| connection.fairlead_report_closed if connection.fairlead_budget_id }
        end
      end

      def fairlead_removed(connection)
        connection.fairlead_report_closed if connection.fairlead_budget_id
        synchronize { fairlead_waiters&.poll_soon }
      end

      # Under the lock: an owner may die while others wait already. Verifying what it held takes time, and must not be done
      # under the lock.
      def fairlead_reap_if_due(now)
        return if now - (@fairlead_reaped_at || 0.0) < INTERVAL || @fairlead_reaper&.alive?

        @fairlead_reaped_at = now
        return if fairlead_orphans.empty?

        @fairlead_reaper = BareThread.start("fairlead reaper", report: true) { reap }
      rescue ::ThreadError # the system allows no more: next time
        nil
      end
    end
  end
end
