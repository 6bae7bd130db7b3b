# frozen_string_literal: true

module Fairlead
  # Makes File#flock wait without blocking its thread. Ruby has no hook for it: a request that waits for a lock that another request
  # of the same worker holds would stop that worker for ever. A serving fiber tries the lock again and again instead; elsewhere
  # nothing changes.
  module FileLock
    FIRST_PAUSE = 0.000_5
    LONGEST_PAUSE = 0.01
    private_constant :FIRST_PAUSE, :LONGEST_PAUSE

    # (see File#flock)
    def flock(operation)
      return super unless Fiber.current_scheduler.is_a?(ServingScheduler)
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
