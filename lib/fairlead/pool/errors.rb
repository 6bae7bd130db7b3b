# frozen_string_literal: true

require "timeout"
# Who rescues the errors of connection_pool, as Rails' cache store for Redis does, rescues these: where that gem is in the
# bundle, they descend from its own.
require "connection_pool" if defined?(Gem) && Gem.loaded_specs.key?("connection_pool")

module Fairlead
  class Pool
    # What all errors of a pool but the timeout have in common.
    class Error < (defined?(::ConnectionPool::Error) ? ::ConnectionPool::Error : ::RuntimeError); end

    # The pool was shut down; it gives no connections any more.
    class PoolShuttingDownError < Error; end

    # So many wait already (`max_waiting`) that nobody may join the line. Nothing was waited for.
    class FullError < Error; end

    # The time to wait for a connection is over. The message says how long it was, how many wait, who holds the
    # connections and since when. A Timeout::Error, as connection_pool's is; the Timeout module is not used.
    class TimeoutError < (defined?(::ConnectionPool::TimeoutError) ? ::ConnectionPool::TimeoutError : ::Timeout::Error); end
  end
end
