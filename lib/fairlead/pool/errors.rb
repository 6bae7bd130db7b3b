# frozen_string_literal: true

require "timeout"
# Code that rescues the errors of connection_pool, as Rails' cache store for Redis does, also rescues these: they
# descend from that gem's errors where it is in the bundle.
require "connection_pool" if defined?(Gem) && Gem.loaded_specs.key?("connection_pool")

module Fairlead
  class Pool
    # The base of a pool's errors, except for the timeout.
    class Error < (defined?(::ConnectionPool::Error) ? ::ConnectionPool::Error : ::RuntimeError); end

    # The pool was shut down and gives out no more connections.
    class PoolShuttingDownError < Error; end

    # The wait queue is full (`max_waiting`); the caller has not waited.
    class FullError < Error; end

    # The time to wait for a connection is over. The message says how long the caller waited, how many others wait,
    # and which threads and fibers hold the connections. It is a Timeout::Error, as connection_pool's is.
    class TimeoutError < (defined?(::ConnectionPool::TimeoutError) ? ::ConnectionPool::TimeoutError : ::Timeout::Error); end
  end
end
