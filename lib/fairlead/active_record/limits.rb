# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # What bounds the connections to the databases, in words, and how to lift it.
    module Limits
      # With fewer connections than this a worker, requests mostly wait for one.
      USEFUL = 16
      LIFT = "set database_connections in config/fairlead.rb (bin/rails generate fairlead:install does)"

      class << self
        # @return [String] "5", or "90 (of all workers together)".
        def of(pool)
          budget = pool.fairlead_budget
          return "#{budget.limit} (of all workers together)" if budget

          pool.max_connections&.to_s || "any number"
        end

        # @return [String] the middle of a sentence.
        def remedy(pool)
          return "allow more in all (database_connections in config/fairlead.rb)" if pool.fairlead_budget

          "allow more (max_connections of #{pool.db_config.name.inspect} in config/database.yml, or a budget for all " \
            "workers: database_connections in config/fairlead.rb)"
        end

        # For the start banner: what limits each database, and how to lift it if that is little.
        #
        # @param configuration [Configuration]
        # @return [Array<String>] none if ActiveRecord is not loaded.
        def told(configuration)
          return [] unless ActiveRecord.loaded?

          budget = configuration.database_connections
          bounded, own = configs.partition { |config| budget && Budget.counts?(config) }
          lines = []
          lines << "#{names(bounded)}: up to #{budget} connections, of all workers together" if bounded.any?
          lines + own.group_by(&:max_connections).flat_map { |size, configs| own_lines(size, configs, budget) }
        end

        # @return [Array<ActiveRecord::DatabaseConfigurations::DatabaseConfig>] of all pools there are.
        def configs = Budget.pools.map(&:db_config).uniq(&:name)

        # @return [Integer, nil] how many connections the database server allows; nil if it does not say.
        def allowed_by_server(pool)
          quietly do
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

        def quietly(&)
          logger = ::ActiveRecord::Base.logger
          logger.respond_to?(:silence) ? logger.silence(&) : yield
        end

        def own_lines(size, configs, budget)
          line = "#{names(configs)}: up to #{size || "any number of"} connections in each worker (config/database.yml)"
          return [line] if size.nil? || size >= USEFUL || budget || configs.none? { |config| Budget.counts?(config) }

          ["#{line}; other requests wait for one.", "To lift that, #{LIFT}."]
        end

        def names(configs) = configs.map(&:name).join(", ")
      end
    end
  end
end
