# frozen_string_literal: true

module Fairlead
  # All that knows the insides of ActiveRecord is below lib/fairlead/active_record.
  module ActiveRecord
    autoload :Budget, "fairlead/connection_budget/worker_budget"
    autoload :CpuIdle, "fairlead/active_record/cpu_idle"
    autoload :Door, "fairlead/active_record/connect_gate"
    autoload :Faults, "fairlead/active_record/connection_recovery"
    autoload :Forks, "fairlead/active_record/forks"
    autoload :InheritedRole, "fairlead/active_record/inherited_role"
    autoload :KeptLeases, "fairlead/active_record/kept_leases"
    autoload :Leases, "fairlead/active_record/leases"
    autoload :Limits, "fairlead/active_record/limits"
    autoload :OlderQueue, "fairlead/active_record/older_queue"
    autoload :OpenTransactions, "fairlead/active_record/open_transactions"
    autoload :OwnerMonitor, "fairlead/active_record/owner_monitor"
    autoload :PermanentCheckout, "fairlead/active_record/permanent_checkout_warning"
    autoload :PoolSizing, "fairlead/active_record/pool_sizing"
    autoload :PoolStats, "fairlead/active_record/pool_stats"
    autoload :Seam, "fairlead/active_record/pool_patch"
    autoload :SqliteTurns, "fairlead/active_record/sqlite_turns"
    autoload :WaitQueue, "fairlead/active_record/wait_queue"
    autoload :Waiter, "fairlead/active_record/waiter"

    # Older ones know too little of fibers.
    OLDEST = Gem::Version.new("7.1")
    private_constant :OLDEST

    class << self
      # To be called by whoever serves, once ActiveRecord is loaded. May be called again.
      #
      # @return [void]
      # @raise [ConfigurationError] if it cannot be served.
      def prepare
        version = ::ActiveRecord.gem_version
        if version < OLDEST
          raise ConfigurationError, "ActiveRecord #{version} cannot be served by fibers: Rails #{OLDEST} or later can."
        end

        Compatibility.fits?(:connections)
        PermanentCheckout.settle
        install_pools
        OpenTransactions.install
        KeptLeases.install
        ::ActiveRecord::ConnectionHandling.prepend(InheritedRole)
      end

      # @return [Boolean] whether ActiveRecord keeps its own pools: without {Seam}, and all that rests on it. So do the versions
      #   before 8.1, and those with which Fairlead has not been tested.
      def own_pools? = @own_pools || Compatibility.tested?(:pool) == false

      # `ActiveRecord::Base` is an autoload: asking never triggers it.
      #
      # @return [Boolean]
      def loaded?
        defined?(::ActiveRecord) && ::ActiveRecord.respond_to?(:gem_version) &&
          !::ActiveRecord.autoload?(:Base) && defined?(::ActiveRecord::Base) ? true : false
      end

      # What the connection pools of this process do now, and have done since it serves. What ActiveRecord itself does not
      # know of them (`oldest_wait:`, `timeouts:`, `waits:`, `holds:` and `holders:`) is left out before 8.1, and where
      # nothing is served.
      #
      # @param backtraces [Boolean] whether to add where each holder is now; that costs some time.
      # @return [Array<Hash>] for each pool `{ pool:, role:, shard:, size:, connections:, in_use:, idle:, waiting:,
      #   oldest_wait:, timeouts:, waits:, holds:, holders: }`: as {Fairlead::Pool#stat}, times in seconds.
      def stat(backtraces: false)
        return [] unless loaded?

        Budget.pools.map { |pool| Seam.installed? ? PoolStats.of(pool).to_h(backtraces:) : plain(pool) }
      end

      private

      def install_pools
        if Compatibility.tested?(:older_pool)
          ::ActiveRecord::ConnectionAdapters::ConnectionPool::Queue.prepend(OlderQueue) if Compatibility.fits?(:older_pool)
        elsif Compatibility.fits?(:pool)
          Seam.install
          Faults.install
        else
          @own_pools = true
        end
      end

      def plain(pool)
        stat = pool.stat
        { pool: pool.db_config.name, role: pool.role, shard: pool.shard, in_use: stat[:busy],
          **stat.slice(:size, :connections, :idle, :waiting) }
      end
    end
  end
end
