# frozen_string_literal: true

# What Fairlead keeps on Ruby's own fibers, threads and IOs, each with who writes it, who reads it, and when it is reset. FiberState
# leaves these attributes alone when it resets a fiber after a request.

class Fiber
  # The ServingFiber that the fiber is; nil for all others. Written by ServingFiber as it begins, and never reset: the fiber serves until
  # it ends. Read by whoever looks for the request of a fiber.
  attr_accessor :fairlead_serving_fiber

  # The innermost section of Uninterruptible that the fiber is in; nil outside of one. Written by Uninterruptible, which returns to the
  # outer section when one ends. Read there, by Timeouts, and by SQLite's driver.
  attr_accessor :fairlead_section

  # Interruptions that the fiber gets at its next waits, one at each. Written by Uninterruptible when a section held them back, which
  # takes each as it raises it, and drops the rest at the end of a request. Read by ThreadParent, too.
  attr_accessor :fairlead_postponed

  # Whether a fiber that its scheduler blocks has been woken and goes on soon; nil for all other fibers. Written by Scheduler: false as the
  # wait begins, true at its wake-up, nil at its end. Read by Uninterruptible and ThreadParent.
  attr_accessor :fairlead_woken

  # How many waits of the fiber have ended: tells a wake-up for its current wait from one for an earlier wait. Only counts up, and is never
  # reset. Written by Scheduler, Selector and Turn; read by what waits on the ready list.
  attr_accessor :fairlead_waits

  # The Turn by which a waiting fiber of a request is woken; nil otherwise. Written and read by Scheduler, which resets it at the end
  # of the wait.
  attr_accessor :fairlead_turn

  # What the fiber waits for, a number of RequestTimes; nil: what its wait itself shows. Written by RequestTimes.during, which resets it at
  # the end of its block. Read by Scheduler and Selector.
  attr_accessor :fairlead_waits_for

  # The ClosedIO::Close that the fiber is in; nil outside of one. Written by ClosedIO, which returns to the outer one at its end. Read by
  # Scheduler, too.
  attr_accessor :fairlead_close
end

class Thread
  # Whether a reactor runs in the thread. Written by Reactor, which resets it at its end, and by Scheduler, which resets it in a forked
  # child. Read by ThreadParent and Containment.
  attr_accessor :fairlead_serves

  # Fibers with a section that are no tasks: an enumerator's, for one. An ObjectSpace::WeakMap, since some never go on. Written and read
  # by Uninterruptible, and never reset.
  attr_accessor :fairlead_plain_sections

  # Fibers that are no tasks, and that the scheduler blocks. Written by Scheduler, which takes each off at the end of its wait. Read by
  # Uninterruptible.
  attr_accessor :fairlead_plain_waits
end

class IO
  # Another IO for the descriptor of one that was reopened, which selectors get instead. Written by ClosedIO at the reopening, and never
  # reset. Read by Selector.
  attr_accessor :fairlead_stand_in
end
