# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # Gives back the database connections that a request still holds at its end, and closes those of a process before it forks.
    #
    # Rails' executor gives them back, too; a plain Rack app has none. ActiveRecord's reaper would never find the connections
    # abandoned, since serving fibers do not die.
    module LeaseCleanup
      class << self
        # To be called at the end of each request, in its own fiber. Returns what the fiber has leased, in all pools of all
        # roles and shards. A connection that cannot be returned is closed, and the error stream says so.
        #
        # @return [void]
        def release
          return unless @ready ||= ActiveRecord.loaded? && Compatibility.fits?(:connections) && Leases.install

          # An interruption in between would keep all further pools from their connections.
          Uninterruptible.run do
            ::ActiveRecord::Base.connection_handler.each_connection_pool do |pool|
              pool.fairlead_leases.each { |connection| give_back(pool, connection) }
            end
          end
        end

        # To be called before a fork: two processes must not use the same connection, so each worker opens its own. A
        # connection that another thread of the app uses now stays open; ActiveRecord drops the copy in the child.
        #
        # @return [void]
        def disconnect_before_fork
          return unless ActiveRecord.loaded?

          ActiveRecord.pools.each do |pool|
            pool.connections.any? { |connection| used_elsewhere?(connection) } ? pool.flush! : pool.disconnect!
          end
        end

        private

        # A check-in that fails has closed it.
        def give_back(pool, connection)
          OpenTransactions.close(connection) if OpenTransactions.in?(connection)
          connection.equal?(pool.active_connection?) ? pool.release_connection : pool.checkin(connection)
        rescue ::Exception => error
          warn "fairlead: a database connection could not be returned to its pool " \
            "(#{error.class}: #{error.message}); it is closed."
        end

        def used_elsewhere?(connection)
          owner = connection.owner
          owner&.alive? && ![Thread.current, Fiber.current].include?(owner)
        end
      end
    end
  end
end
