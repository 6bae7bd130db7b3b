# frozen_string_literal: true

require "fairlead/pool"

module Fairlead
  module ActiveRecord
    # The waiters of one connection pool. A waiter is told to take a connection that is free, or to open one; until then it
    # keeps its place in the queue, whatever else wakes it.
    #
    # One waiter is the poller. It wakes at intervals to check whether the pool should open another connection, and whether a
    # waiter's time is over: one timer for all of them. The youngest waiter is appointed, since it stays longest. It polls even
    # if it has been assigned a connection meanwhile: a busy thread may serve all waiters between two turns of its reactor. A
    # waiter of another thread replaces a poller whose thread does not come back to its fibers.
    #
    # A waiter times out once the queue has stood still for its timeout: each waiter that gets or opens a connection gives all others
    # their time anew. So a long queue alone is no reason to give up.
    class WaitQueue < Fairlead::Pool::WaitQueue
      # Seconds in which connections in use may come back before the pool opens another one.
      OPEN_AFTER = 0.002
      # The longest pause, in seconds, between two polls.
      LONGEST_PAUSE = 0.25
      # Seconds that the poller may oversleep before another waiter takes over, and between two checks of that by waiters of
      # other threads; a newcomer checks at once.
      LATE = 0.02
      CHECK_INTERVAL = 1.0

      # @return [Fiber, Thread, nil] whose waiters go to the head of the queue.
      attr_accessor :preferred
      # @return [Integer] how many waiters have been told to open a connection and have not been removed yet.
      attr_reader :opening

      # @param lock [Monitor] the pool's.
      def initialize(lock)
        super()
        @lock = lock
        @opening = 0
        @poller = nil
        @pause = OPEN_AFTER
        @poll_at = nil # the next poll, whichever waiter is the poller by then
        @poller_wakes_at = 0.0
        @earliest_deadline = nil # of the waiters without a timer; the deadlines may have moved since
        @progressed_at = 0.0
      end

      # @return [Float] how long a waiter waits at most, as things are.
      def deadline(waiter) = [waiter.since, @progressed_at].max + waiter.timeout

      # @return [Float] when the one that waits longest began to: the first one may be a newcomer of an older request.
      def since = to_a.map(&:since).min

      # A waiter has got a connection.
      def record_progress(now) = @progressed_at = now

      # @param timeout [Float] seconds for which the queue may stand still.
      # @return [Waiter] the calling fiber's. The caller has to {#remove} it.
      def join(context, timeout)
        push(Waiter.new(timeout, preferred: context.equal?(@preferred)))
      end

      def remove(waiter)
        delete(waiter.fiber)
        @opening -= 1 if waiter.assignment == :open
        appoint_poller if @poller.equal?(waiter)
      end

      # Wakes the oldest waiter.
      #
      # @param assignment [Symbol] :take a free connection, or :open one.
      def assign_next(assignment = :take)
        waiter = shift or return
        @opening += 1 if assignment == :open
        waiter.assignment = assignment
        waiter.wake
      end

      # The waiter could not do what it was told: it is back in its place in the queue.
      def restore(waiter)
        waiter.assignment = nil
        super
      end

      # Sleeps, without the lock, until the waiter is woken, its time is over, or, as the poller, it has to poll.
      #
      # @yieldreturn [Boolean] after a poll: whether to poll again soon.
      def wait(waiter, &)
        now = Clock.now
        same_thread = waiter.scheduler && waiter.scheduler.equal?(@poller&.scheduler)
        @poller = waiter if @poller.nil? || (!same_thread && now > @poller_wakes_at + LATE)
        return wait_and_poll(waiter, now, &) if @poller.equal?(waiter)

        seconds = deadline(waiter) - now
        seconds = same_thread ? without_timer(waiter, seconds) : [seconds, CHECK_INTERVAL].min
        @lock.wait_for_cond(waiter, seconds)
      end

      # Something has changed: there may be a connection to open.
      def poll_soon
        reset_pause
        @poller&.wake
      end

      private

      # A timer for each waiter would cost more than all else that it does: the poller sees to its deadline.
      def without_timer(waiter, seconds)
        return seconds if seconds <= LONGEST_PAUSE

        @earliest_deadline = [@earliest_deadline, deadline(waiter)].compact.min
        nil
      end

      def appoint_poller
        @poller = to_a.last
        return reset_pause if @poller.nil? # the next newcomer

        @poller_wakes_at = Clock.now
        @poller.wake
      end

      def reset_pause
        @pause = OPEN_AFTER
        @poll_at = nil
      end

      def wait_and_poll(waiter, now)
        @poll_at ||= now + @pause
        wakes_at = @poller_wakes_at = [@poll_at, deadline(waiter), @earliest_deadline].compact.min
        @lock.wait_for_cond(waiter, wakes_at - now) if wakes_at > now
        return if (now = Clock.now) < wakes_at

        wake_expired(now) if @earliest_deadline && now >= @earliest_deadline
        @pause = yield ? OPEN_AFTER : [@pause * 2, LONGEST_PAUSE].min
        @poll_at = now + @pause if @poller.equal?(waiter)
      end

      def wake_expired(now)
        expired, others = to_a.partition { |waiter| deadline(waiter) <= now }
        expired.each(&:wake)
        @earliest_deadline = others.map { |waiter| deadline(waiter) }.min
      end
    end
  end
end
