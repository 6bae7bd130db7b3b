# frozen_string_literal: true

require "timeout"

module Fairlead
  class Pool
    # What all errors of a pool but the timeout have in common.
    class Error < ::RuntimeError; end

    # The pool was shut down; it gives no connections any more.
    class PoolShuttingDownError < Error; end

    # So many wait already (`max_waiting`) that nobody may join the line. Nothing was waited for.
    class FullError < Error; end

    # The time to wait for a connection is over. The message says how long it was, how many wait, who holds the
    # connections and since when. A Timeout::Error, as connection_pool's is; the Timeout module is not used.
    class TimeoutError < ::Timeout::Error; end
  end
end
