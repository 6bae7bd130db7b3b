# frozen_string_literal: true

module Fairlead
  # Of Thread::Mutex. Who waits on a condition variable, or on a monitor's, sleeps here. In a thread Ruby lets nothing interrupt him while
  # he takes the lock again; a fiber that is interrupted there would go on without the lock, and the monitor would stay locked for ever.
  module MutexSleep
    # @param timeout [Numeric, nil] seconds
    # @return [Integer] seconds
    def sleep(timeout = nil)
      scheduler = ::Fiber.current_scheduler or return super

      began = Clock.now
      unlock
      begin
        scheduler.kernel_sleep(*timeout)
      ensure
        Uninterruptible.run { lock }
      end
      (Clock.now - began).round
    end

    ::Thread::Mutex.prepend(self)
  end
end
