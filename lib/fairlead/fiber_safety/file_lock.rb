# frozen_string_literal: true

module Fairlead
  # File#flock that waits without holding its thread. Ruby has no hook for it: a request that waits for a lock held by
  # another request of the same worker would stop that worker for ever. In a serving fiber the lock is tried again and
  # again instead; elsewhere nothing changes.
  module FileLock
    FIRST_PAUSE = 0.000_5
    LONGEST_PAUSE = 0.01
    private_constant :FIRST_PAUSE, :LONGEST_PAUSE

    # (see File#flock)
    def flock(operation)
      return super unless Fiber.current_scheduler.is_a?(Scheduler)
      return super if (operation & (File::LOCK_NB | File::LOCK_UN)).positive?

      pause = FIRST_PAUSE
      until (result = super(operation | File::LOCK_NB))
        sleep pause
        pause = [pause * 1.5, LONGEST_PAUSE].min
      end
      result
    end

    File.prepend(self)
  end
end
