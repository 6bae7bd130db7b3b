# frozen_string_literal: true

require_relative "uninterruptible"

module Fairlead
  # Prepended to Mutex, whose `sleep` condition variables and monitors call. Whoever has waited has the lock again, whatever ends the wait,
  # as threads do. Ruby's own method lets an exception end a fiber's wait for the lock: `synchronize` then raises a ThreadError, and a
  # monitor takes another fiber's lock for its own.
  module MutexSleep
    # (see Thread::Mutex#sleep)
    def sleep(timeout = nil)
      scheduler = ::Fiber.current_scheduler
      return super unless scheduler && (timeout.nil? || (timeout.is_a?(::Numeric) && !timeout.negative?))

      began = Clock.now
      unlock
      begin
        woken = scheduler.kernel_sleep(timeout)
      ensure
        try_lock || Uninterruptible.run { lock }
      end
      (Clock.now - began).round unless woken == false
    end

    ::Thread::Mutex.prepend(self)
  end
end
