# frozen_string_literal: true

# Database connections of ActiveRecord by fiber: fair pools, a budget for each worker, and nothing left behind by a request.
# Called by integrations, control, supervision and doctor.
# Calls drivers, fiber_safety and pool.

module Fairlead
  # All that knows the insides of ActiveRecord.
  module ActiveRecord
    autoload :AdapterPatch, "fairlead/active_record/adapter_patch"
    autoload :ConnectGate, "fairlead/active_record/connect_gate"
    autoload :CpuIdle, "fairlead/active_record/cpu_idle"
    autoload :InheritedRole, "fairlead/active_record/inherited_role"
    autoload :LeaseCleanup, "fairlead/active_record/lease_cleanup"
    autoload :Leases, "fairlead/active_record/leases"
    autoload :Limits, "fairlead/active_record/limits"
    autoload :OpenTransactions, "fairlead/active_record/open_transactions"
    autoload :OwnQueue, "fairlead/active_record/own_queue"
    autoload :PermanentCheckoutWarning, "fairlead/active_record/permanent_checkout_warning"
    autoload :PoolPatch, "fairlead/active_record/pool_patch"
    autoload :PoolSizing, "fairlead/active_record/pool_sizing"
    autoload :PoolStats, "fairlead/active_record/pool_stats"
    autoload :QueuePatch, "fairlead/active_record/queue_patch"
    autoload :Reaping, "fairlead/active_record/reaping"
    autoload :RequestLock, "fairlead/active_record/request_lock"
    autoload :SqliteTurns, "fairlead/active_record/sqlite_turns"
    autoload :WaitQueue, "fairlead/active_record/wait_queue"
    autoload :Waiter, "fairlead/active_record/waiter"
    autoload :WorkerBudget, "fairlead/active_record/worker_budget"

    # Older ones know too little of fibers.
    OLDEST = Gem::Version.new("7.1")
    private_constant :OLDEST

    class << self
      # To be called before serving, once ActiveRecord is loaded. May be called again.
      #
      # @return [void]
      # @raise [ConfigurationError] if it cannot be served.
      def prepare
        version = ::ActiveRecord.gem_version
        if version < OLDEST
          raise ConfigurationError, "ActiveRecord #{version} cannot be served by fibers: Rails #{OLDEST} or later can."
        end

        Compatibility.fits?(:connections)
        Cleanup.add(LeaseCleanup.method(:release))
        PermanentCheckoutWarning.apply_setting
        [Leases, OpenTransactions, RequestLock].each(&:install)
        install_pools
        ::ActiveRecord::ConnectionHandling.prepend(InheritedRole) unless ::ActiveRecord::ConnectionHandling.include?(InheritedRole)
      end

      # @return [Boolean] whether ActiveRecord keeps its own pools, without {PoolPatch} and all that rests on it: versions
      #   before 8.1, and those with which Fairlead has not been tested.
      def own_pools? = @own_pools || Compatibility.tested?(:pool) == false

      # Does not load ActiveRecord::Base, which is an autoload.
      #
      # @return [Boolean]
      def loaded?
        defined?(::ActiveRecord) && ::ActiveRecord.respond_to?(:gem_version) &&
          !::ActiveRecord.autoload?(:Base) && defined?(::ActiveRecord::Base) ? true : false
      end

      # @return [Array<ConnectionPool>] of all roles.
      def pools = ::ActiveRecord::Base.connection_handler.connection_pool_list(:all)

      # The present state of this process's connection pools, and their totals since it began to serve. Before ActiveRecord 8.1,
      # and where nothing is served, `oldest_wait:`, `timeouts:`, `waits:`, `holds:` and `holders:` are missing.
      #
      # @param backtraces [Boolean] whether to add where each holder is now, which takes time.
      # @return [Array<Hash>] for each pool `{ pool:, role:, shard:, size:, connections:, in_use:, idle:, waiting:,
      #   oldest_wait:, timeouts:, waits:, holds:, holders: }`: as {Fairlead::Pool#stat}, times in seconds.
      def stat(backtraces: false)
        return [] unless loaded?

        pools.map { |pool| PoolPatch.installed? ? PoolStats.of(pool).to_h(backtraces:) : plain(pool) }
      end

      private

      def install_pools
        return PoolPatch.install if Compatibility.tested?(:own_queue) == false && Compatibility.fits?(:pool)

        @own_pools = true
        ::ActiveRecord::ConnectionAdapters::ConnectionPool::Queue.prepend(OwnQueue) if Compatibility.fits?(:own_queue)
      end

      def plain(pool)
        stat = pool.stat
        { pool: pool.db_config.name, role: pool.role, shard: pool.shard, in_use: stat[:busy],
          **stat.slice(:size, :connections, :idle, :waiting) }
      end
    end
  end
end
