# frozen_string_literal: true

module Fairlead
  # Sequel's pools know who has a connection by the thread: two requests in fibers of one thread would be one owner, and
  # use the same connection at once. So they go by fiber, as Sequel's own extension has it, but for fibers that a request makes
  # itself: they use the request's connection, within its transaction.
  module SequelPools
    # Of Sequel, over its own extension.
    module ByOwner
      def current = FiberOwner.current
    end

    # To be called by whoever serves, once the app is loaded. May be called again.
    #
    # @return [void]
    def self.isolate
      return if !loaded? || ::Sequel.singleton_class.include?(ByOwner)

      Compatibility.fits?(:sequel)
      FiberOwner.track
      ::Sequel.extension(:fiber_concurrency)
      ::Sequel.extend(ByOwner)
      Cleanup.add(method(:close_abandoned))
    end

    # To be called before a fork: closes what the app has opened while it was loaded. Each worker opens its own.
    #
    # @return [void]
    def self.release
      ::Sequel::DATABASES.each(&:disconnect) if loaded?
    end

    # To be called at a request's end, in its own fiber: closes what one of the fibers that it made has left checked out, in
    # the midst of a transaction perhaps. Nobody would give that back, and the next request would be within it.
    #
    # @return [void]
    def self.close_abandoned
      owner = FiberOwner.current
      ::Sequel::DATABASES.each do |database|
        allocated = database.pool.instance_variable_get(:@allocated) or next # it has but one connection
        sharded = database.pool.pool_type.start_with?("sharded")
        (sharded ? allocated : { nil => allocated }).each do |server, connections|
          close(database, connections, owner, [*server]) if connections.key?(owner)
        end
      end
    end

    # As the pools do with a connection that is lost.
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

    # @return [Boolean]
    def self.loaded? = defined?(::Sequel::DATABASES) ? true : false
  end
end
