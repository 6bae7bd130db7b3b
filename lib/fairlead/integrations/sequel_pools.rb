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

    # Call it once the app is loaded, in a process that serves. May be called again.
    def self.isolate
      return if !loaded? || ::Sequel.singleton_class.include?(ByOwner)

      Compatibility.fits?(:sequel)
      FiberOwner.track
      ::Sequel.extension(:fiber_concurrency)
      ::Sequel.extend(ByOwner)
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
        allocated = database.pool.instance_variable_get(:@allocated) or next # a pool of one connection
        sharded = database.pool.pool_type.start_with?("sharded")
        (sharded ? allocated : { nil => allocated }).each do |server, connections|
          close(database, connections, owner, [*server]) if connections.key?(owner)
        end
      end
    end

    # Does what the pools do with a lost connection.
    #
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
    private_class_method :close

    def self.loaded? = defined?(::Sequel::DATABASES) ? true : false
  end
end
