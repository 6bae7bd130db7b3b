# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # Puts into words what bounds the connections to the databases, and how to raise it.
    module Limits
      # With fewer connections than this a worker, requests mostly wait for one.
      USEFUL = 16
      private_constant :USEFUL

      class << self
        # @return [String] "5", or "90 (of all workers together)".
        def of(pool)
          budget = pool.fairlead_budget
          return "#{budget.limit} (of all workers together)" if budget

          pool.size&.to_s || "any number"
        end

        # @return [String] what the app calls their databases.
        def names(pools) = pools.map { |pool| pool.db_config.name }.uniq.join(", ")

        # @return [Boolean] whether a pool's own size is a small limit.
        def few?(pool) = !pool.size.nil? && pool.size < USEFUL

        # @return [String] how to raise it, in the middle of a sentence.
        def lift(pool)
          return "raise pool in config/database.yml" if ActiveRecord.own_pools?
          return "raise database_connections in config/fairlead.rb" if WorkerBudget.of(pool.db_config)

          own = "raise max_connections in config/database.yml"
          return own unless WorkerBudget.counts?(pool.db_config)

          "set database_connections in config/fairlead.rb (bin/rails generate fairlead:install does), or #{own}"
        end

        # @return [String, nil] what an ActiveRecord that keeps its own pools lacks.
        def missing
          return unless ActiveRecord.own_pools?
          return untested if Compatibility::TABLE[:pool].newer?

          "ActiveRecord #{::ActiveRecord.gem_version} keeps its pools as they are: database_connections, and figures of how " \
            "long requests wait for a connection, need #{Compatibility::TABLE[:pool].known}."
        end

        # For the start banner: what bounds each database, and how to raise it if that is little.
        #
        # @param configuration [Configuration]
        # @return [Array<String>] none if ActiveRecord is not loaded.
        def summary(configuration)
          return [] unless ActiveRecord.loaded?

          budget = configuration.database_connections
          pools = ActiveRecord.pools.uniq { |pool| pool.db_config.name }
          bounded, own = pools.partition { |pool| budget && WorkerBudget.counts?(pool.db_config) }
          lines = []
          lines << "#{names(bounded)}: up to #{budget} connections, of all workers together" if bounded.any?
          alike = own.group_by { |pool| [pool.size, WorkerBudget.counts?(pool.db_config)] }
          [*lines, *alike.each_value.flat_map { |those| of_each_worker(those) }, *missing]
        end

        # @param pools [Array<ConnectionPool>] of one size, which nothing else bounds; all of servers, or all of files.
        # @return [Array<String>] what bounds them, and how to raise it if that is little.
        def of_each_worker(pools)
          pool = pools.first
          line = "#{names(pools)}: up to #{pool.size || "any number of"} connections in each worker (config/database.yml)"
          few?(pool) ? ["#{line}; other requests wait for one.", "To lift that, #{lift(pool)}."] : [line]
        end

        # @return [Integer, nil] how many connections the database server allows; nil if it does not say.
        def allowed_by_server(pool)
          silenced do
            pool.with_connection do |connection|
              case connection.adapter_name
              when "PostgreSQL" then Integer(connection.select_value("SHOW max_connections"), 10)
              when "Mysql2", "Trilogy" then Integer(connection.select_value("SELECT @@max_connections"))
              end
            end
          end
        rescue ::StandardError
          nil
        end

        private

        def untested
          "ActiveRecord #{::ActiveRecord.gem_version} is newer than what was tested (#{Compatibility::TABLE[:pool].known}), and keeps " \
            "its pools as they are: without database_connections, and figures of how long requests wait for a connection."
        end

        def silenced(&)
          logger = ::ActiveRecord::Base.logger
          logger.respond_to?(:silence) ? logger.silence(&) : yield
        end
      end
    end
  end
end
