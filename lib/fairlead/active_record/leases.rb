# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # Gives back the database connections that a request still holds at its end.
    #
    # Rails' executor does so too; a plain Rack app has none, and its serving fibers never die, so that
    # ActiveRecord's reaper would never find their connections abandoned.
    module Leases
      class << self
        # Returns what the current fiber has leased, in all pools of all roles and shards, to its pool. To be
        # called at the end of each request, in its own fiber; a connection that cannot be given back is closed,
        # and said to be on the error stream.
        #
        # @return [void]
        def release
          return unless @loaded || discovered?

          # What arrives meanwhile would keep all further pools from theirs: serving fibers never die.
          Uninterruptible.run do
            ::ActiveRecord::Base.connection_handler.each_connection_pool do |pool|
              connection = pool.active_connection?
              give_back(pool, connection) if connection
            end
          end
        end

        private

        # An app may load ActiveRecord in a request only: its fibers are isolated from here on, at the latest.
        def discovered?
          return false unless ActiveRecord.loaded?

          @loaded = true
          Isolation.establish
          true
        end

        def give_back(pool, connection)
          Uninterruptible.run do
            OpenTransactions.close(connection) if OpenTransactions.in?(connection)
            pool.release_connection
          end
        rescue ::Exception => error
          warn "fairlead: a database connection could not be returned to its pool " \
            "(#{error.class}: #{error.message}); it is closed."
          discard(pool, connection)
        end

        # The database rolls back what was open, and the pool may open a new connection.
        def discard(pool, connection)
          pool.remove(connection)
          connection.disconnect!
        rescue ::Exception => error
          warn "fairlead: a database connection could not be closed (#{error.class}: #{error.message})."
        end
      end
    end
  end
end
