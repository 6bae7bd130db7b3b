# frozen_string_literal: true

module Fairlead
  # Has Sequel's pools know the owner of a connection by fiber. By thread, two requests in fibers of one thread would use the same
  # connection at once. Sequel's own extension does that too, but fibers that a request makes itself have to use its connection,
  # within its transaction.
  module SequelPools
    # Extends Sequel, over its own extension.
    module ByOwner
      def current = FiberOwner.current
    end

    # Extends a pool: it gives out no connection that an interrupted statement, or the server, has closed.
    module Open
      private

      # @param server [Array<Symbol>] empty: the pool is not sharded
      def acquire(owner, *server)
        connection = super
        return connection unless connection.respond_to?(:fairlead_lost?) && connection.fairlead_lost?

        allocated = server.empty? ? @allocated : @allocated[server.first]
        SequelPools.close(db, allocated, owner, server)
        acquire(owner, *server)
      end
    end

    # Call it once the app is loaded, in a process that serves. May be called again.
    def self.isolate
      return if !loaded? || ::Sequel.singleton_class.include?(ByOwner)

      Compatibility.fits?(:sequel)
      FiberOwner.track
      ::Sequel.extension(:fiber_concurrency)
      ::Sequel.extend(ByOwner)
      ::Sequel::DATABASES.each { |database| database.pool.extend(Open) }
      ::Sequel::Database.after_initialize { |database| database.pool.extend(Open) }
      Cleanup.add(method(:close_abandoned))
    end

    # Closes the connections of this process. Call it before a fork: each worker opens its own.
    def self.release
      ::Sequel::DATABASES.each(&:disconnect) if loaded?
    end

    # Closes connections that a fiber of the request has left checked out, perhaps within a transaction: nothing else would return
    # them, and the next request would be within it. A step of {Cleanup}.
    def self.close_abandoned
      owner = FiberOwner.current
      ::Sequel::DATABASES.each do |database|
        taken(database.pool, owner).each { |server, connections| close(database, connections, owner, [*server]) }
      end
    end

    # @return [Array<Array(Symbol, Hash)>] for each server with a connection that the owner has: its name (nil: the pool is not sharded),
    #   and the connections that are taken.
    def self.taken(pool, owner)
      allocated = pool.instance_variable_get(:@allocated) or return [] # a pool of one connection
      allocated = { nil => allocated } unless pool.pool_type.start_with?("sharded")
      allocated.select { |_, connections| connections.key?(owner) }.to_a
    end

    # Does what the pools do with a lost connection.
    #
    # @api private
    # @param server [Array<Symbol>] empty: the pool is not sharded
    def self.close(database, connections, owner, server)
      pool = database.pool
      connection = pool.send(:sync) { connections.delete(owner) }
      ::Sequel.synchronize { database.instance_variable_get(:@transactions).delete(connection) }
      if pool.respond_to?(:disconnect_pool_connection, true) then pool.send(:disconnect_pool_connection, connection, *server)
      else pool.send(:disconnect_connection, connection)
      end
      return pool.send(:fill_queue, *server, 1) if pool.respond_to?(:fill_queue, true)

      waiter = pool.instance_variable_get(:@waiter) || pool.instance_variable_get(:@waiters)[server.first]
      pool.send(:sync) { waiter.signal }
    end
    private_class_method :taken

    def self.loaded? = defined?(::Sequel::DATABASES) ? true : false
  end
end
