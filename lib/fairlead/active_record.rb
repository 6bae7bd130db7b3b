# frozen_string_literal: true

module Fairlead
  # All that knows the insides of ActiveRecord is below lib/fairlead/active_record.
  module ActiveRecord
    autoload :Budget, "fairlead/active_record/budget"
    autoload :Door, "fairlead/active_record/door"
    autoload :Faults, "fairlead/active_record/faults"
    autoload :Forks, "fairlead/active_record/forks"
    autoload :Growth, "fairlead/active_record/growth"
    autoload :Leases, "fairlead/active_record/leases"
    autoload :Limits, "fairlead/active_record/limits"
    autoload :Line, "fairlead/active_record/line"
    autoload :PermanentCheckout, "fairlead/active_record/permanent_checkout"
    autoload :Seam, "fairlead/active_record/seam"
    autoload :Usage, "fairlead/active_record/usage"
    autoload :Waiter, "fairlead/active_record/waiter"

    class << self
      # To be called by whoever serves, once ActiveRecord is loaded. May be called again.
      #
      # @return [void]
      def prepare
        Seam.install
        Faults.install
        PermanentCheckout.settle
      end

      # `ActiveRecord::Base` is an autoload: asking never triggers it.
      #
      # @return [Boolean]
      def loaded?
        defined?(::ActiveRecord) && ::ActiveRecord.respond_to?(:gem_version) &&
          !::ActiveRecord.autoload?(:Base) && defined?(::ActiveRecord::Base) ? true : false
      end

      # What the connection pools of this process do now, and have done since it serves.
      #
      # @param backtraces [Boolean] whether to add where each holder is now; that costs some time.
      # @return [Array<Hash>] for each pool `{ pool:, role:, shard:, size:, connections:, in_use:, idle:, waiting:,
      #   oldest_wait:, timeouts:, waits:, holds:, holders: }`: as {Fairlead::Pool#stat}, times in seconds.
      def stat(backtraces: false)
        return [] unless loaded?

        pools = ::ActiveRecord::Base.connection_handler.connection_pool_list(:all)
        pools.map { |pool| Usage.of(pool).to_h(backtraces:) }
      end
    end
  end
end
