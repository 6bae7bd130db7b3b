# frozen_string_literal: true

module Fairlead
  class Doctor
    # Compares the connection pools with what the databases allow.
    module Databases
      # Connections that PostgreSQL reserves for administrators by default.
      RESERVED = 3
      private_constant :RESERVED

      class << self
        def findings(configuration)
          return [] unless ActiveRecord.loaded?

          @configuration = configuration
          pools = ActiveRecord.pools
          found = pools.group_by { |pool| server_of(pool.db_config) }.flat_map do |server, those|
            next server_findings(server, those) if server

            [small(those, level: :note, why: "While that many requests wait to write, readers wait, too.")]
          end
          [*found, prepared(pools), old].compact
        end

        private

        def server_of(config)
          return unless ActiveRecord::WorkerBudget.counts?(config)

          hash = config.configuration_hash
          "#{config.adapter} at #{hash[:host] || hash[:socket] || "this machine"}#{":#{hash[:port]}" if hash[:port]}"
        end

        def server_findings(server, pools)
          [(small(pools) unless budget), too_many(server, pools)].compact
        end

        def small(pools, level: :hurts, why: "Further requests wait for one, however many fibers there are.")
          those = pools.select { |pool| ActiveRecord::Limits.few?(pool) }
          return if those.empty?

          list = those.map { |pool| "#{pool.db_config.name} (#{pool.size})" }.uniq.join(", ")
          Finding.new(level:, what: "Few connections in each worker: #{list}. #{why}",
                      remedy: "#{ActiveRecord::Limits.lift(those.first).capitalize}.")
        end

        # mysql2 calls mysql_stmt_store_result with the GVL held.
        def prepared(pools)
          those = pools.select { |pool| prepares?(pool.db_config) }
          return if those.empty?

          Finding.new(
            level: :hurts,
            what: "#{ActiveRecord::Limits.names(those)}: prepared statements are on, and mysql2 holds the GVL until the result of " \
                  "one has arrived. While that is slow, other requests of the worker wait, too.",
            remedy: "Remove prepared_statements from config/database.yml, which turns them off, or use `adapter: trilogy`, which has " \
                    "none."
          )
        end

        # Interprets the setting as ActiveRecord does.
        def prepares?(config)
          config.adapter == "mysql2" && !::ActiveRecord.disable_prepared_statements &&
            ![nil, false, "false"].include?(config.configuration_hash[:prepared_statements])
        end

        def too_many(server, pools)
          allowed = ActiveRecord::Limits.allowed_by_server(pools.first)
          return Finding.new(level: :note, what: "#{server} did not say how many connections it allows.") unless allowed

          wanted = wanted_of(pools)
          return if wanted && wanted <= allowed - RESERVED

          Finding.new(
            level: :hurts, remedy: bound_of_all((allowed * 0.9).floor),
            what: "#{server} allows #{allowed} connections; #{in_words(wanted)}, but apps get only #{allowed - RESERVED}: under load " \
                  "it will refuse some."
          )
        end

        def bound_of_all(number)
          return "Lower pool in config/database.yml, or the number of workers." if ActiveRecord.own_pools?

          "Write `database_connections #{number}` in config/fairlead.rb to limit all workers together."
        end

        # @return [Integer, nil] what all workers may open; nil: any number.
        def wanted_of(pools)
          return budget if budget

          sizes = pools.map(&:size)
          sizes.sum * [@configuration.workers, 1].max if sizes.all?
        end

        def in_words(wanted)
          return "all workers together open up to #{budget} (database_connections)" if budget

          "#{[@configuration.workers, 1].max} workers may open #{wanted || "any number"}"
        end

        def budget = (@configuration.database_connections unless ActiveRecord.own_pools?)

        # With database_connections the server refuses to start.
        def old
          missing = ActiveRecord::Limits.missing or return
          newer = Compatibility::TABLE[:pool].newer?
          Finding.new(level: @configuration.database_connections ? :hurts : :note, what: missing,
                      remedy: newer ? "Update Fairlead once a version of it has been tested with this one." : "Update Rails.")
        end
      end
    end
  end
end
