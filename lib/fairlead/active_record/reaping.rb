# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # Of ConnectionPool: takes connections out of the pool, closes them, and lets the budget know. None of it can be
    # interrupted halfway.
    module Reaping
      # Seconds between two searches for connections whose owners have died.
      INTERVAL = 0.01
      private_constant :INTERVAL

      def remove(connection)
        Uninterruptible.run do
          connection.fairlead_checked_out_at = nil
          super
          connection.fairlead_report_closed if connection.fairlead_budget_id
          synchronize { fairlead_waiters&.poll_soon }
        end
      end

      # ActiveRecord removes what a dead owner held, and has lost, without closing it.
      def reap
        fairlead_uninterrupted do
          orphans = synchronize { discarded? ? [] : fairlead_orphans }
          super
          orphans.each { |connection| connection.disconnect! unless fairlead_has?(connection) }
        end
      end

      def disconnect(...) = fairlead_report_removed { super }
      def clear_reloadable_connections(...) = fairlead_report_removed { super }

      # Interrupted, these would not give back what they have taken out of the pool, or keep from others.
      %i[discard! flush prepopulate retire_old_connections preconnect keep_alive].each do |name|
        define_method(name) { |*arguments| fairlead_uninterrupted { super(*arguments) } }
      end

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

      # Without a scheduler, in ActiveRecord's own reaper thread, the process must be able to end while a database does not answer.
      def fairlead_uninterrupted(&) = ::Fiber.current_scheduler ? Uninterruptible.run(&) : yield

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

      def fairlead_report_removed
        fairlead_uninterrupted do
          before = discarded? ? [] : connections
          yield
        ensure
          after = discarded? ? [] : connections
          (before - after).each { |connection| connection.fairlead_report_closed if connection.fairlead_budget_id }
        end
      end

      # Under the lock: an owner may die while others wait already. Verifying what it held takes time, and must not be done
      # under the lock.
      def fairlead_reap_if_due(now)
        return if now - (@fairlead_reaped_at || 0.0) < INTERVAL || @fairlead_reaper&.alive?

        @fairlead_reaped_at = now
        return if fairlead_orphans.empty?

        # Threads inherit the storage of the fiber that makes them: this one belongs to no request.
        @fairlead_reaper = ::Fiber.new(blocking: true, storage: {}) { ::Thread.new { reap } }.resume
        @fairlead_reaper.name = "fairlead reaper"
      rescue ::ThreadError # the system allows no more: next time
        nil
      end

      # Under the lock: connections whose owners have died.
      def fairlead_orphans = @connections.select { |connection| connection.in_use? && !connection.owner.alive? }

      def fairlead_discard(connection)
        Uninterruptible.run do
          remove(connection) if fairlead_has?(connection)
          connection.disconnect!
        end
      end
    end
  end
end
