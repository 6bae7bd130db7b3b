# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # Those who wait for a connection of one pool, the oldest first. Each is called by itself, once there is a
    # connection for it to take or it may open one, and keeps its place however often it wakes for another reason.
    #
    # One of them is the lookout: it wakes every now and then to see whether the pool should open another connection, and
    # whose time is over. The youngest is appointed, since it stays the longest. It looks also if it has been called
    # meanwhile: where a busy thread calls all who wait between two turns of its reactor, nobody else could. One whose thread
    # does not come back to its fibers is replaced by a waiter of another thread.
    #
    # A waiter gives up once the line has stood still for its time, and not because the line is long: each waiter that gets a
    # connection gives all others their time anew.
    #
    # Every method is called under the pool's lock.
    class Line
      # How long, in seconds, a connection in use may take to come back before another one is opened; and how seldom
      # the lookout looks when there is nothing to be opened.
      PATIENCE = 0.002
      LONGEST_NAP = 0.25
      # For how long, in seconds, the lookout may oversleep before another one takes its place, and how seldom those of
      # other threads who wait already see to that; whoever comes does at once.
      LATE = 0.02
      CHECK = 1.0

      # @return [Fiber, Thread, nil] who stands at the head of the line whenever it comes.
      attr_accessor :preferred

      # @param lock [Monitor] the pool's.
      def initialize(lock)
        @lock = lock
        @waiting = {}.compare_by_identity # not called yet: waiter => true
        @opening = 0
        @lookout = nil
        @nap = PATIENCE
        @look_at = nil # when to look next, whoever is the lookout then
        @wake = 0.0 # when the lookout should wake
        @due = nil # the first of the deadlines to which the lookout sees; they may be later by now
        @moved_at = 0.0
      end

      # @return [Integer] how many have been called to open a connection and have not left the line yet.
      attr_reader :opening

      # @return [Integer] how many have not been called yet.
      def size = @waiting.size

      # @return [Waiter, nil]
      def oldest
        @waiting.each_key { |waiter| return waiter }
        nil
      end

      # @return [Float] until when a waiter waits at most, as things are.
      def deadline(waiter) = [waiter.since, @moved_at].max + waiter.seconds

      # A waiter has got a connection.
      def moved(now) = @moved_at = now

      # @param seconds [Float] for which the line may stand still.
      # @return [Waiter] to be given to {#leave} in any case.
      def join(context, seconds)
        waiter = Waiter.new(context, Line.clock, seconds)
        preferred?(waiter) ? put(waiter) : @waiting[waiter] = true
        waiter
      end

      def leave(waiter)
        @waiting.delete(waiter)
        @opening -= 1 if waiter.called == :to_open
        return unless @lookout.equal?(waiter)

        appoint
      end

      # Calls the oldest one who has not been called.
      #
      # @param what [Symbol] :to_take a connection that there is for it, or :to_open one.
      def call_next(what = :to_take)
        return if @waiting.empty?

        waiter, = @waiting.shift
        @opening += 1 if what == :to_open
        waiter.called = what
        waiter.signal
      end

      # There was none after all, or it could not open one: it stands in the line as if it had not been called.
      #
      # @return [Waiter]
      def call_back(waiter)
        waiter.called = nil
        put(waiter)
        waiter
      end

      # Sleeps, without the lock, until the waiter is called, its time is over, or, as the lookout, it should look.
      #
      # @yieldreturn [Boolean] when it looked, whether to look again soon.
      def rest(waiter, &)
        now = Line.clock
        of_same_thread = waiter.scheduler && waiter.scheduler.equal?(@lookout&.scheduler)
        @lookout = waiter if @lookout.nil? || (!of_same_thread && now > @wake + LATE)
        return look_out(waiter, now, &) if @lookout.equal?(waiter)

        deadline = deadline(waiter)
        seconds = deadline - now
        if !of_same_thread
          seconds = [seconds, CHECK].min
        elsif seconds > LONGEST_NAP
          # A timer for each would cost more than all else that its waiting does.
          @due = deadline if @due.nil? || deadline < @due
          seconds = nil
        end
        @lock.wait_for_cond(waiter, seconds)
      end

      # Something has changed: the lookout shall look soon.
      def look_soon
        rest_briefly
        @lookout&.signal
      end

      def self.clock = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      private

      # Behind those who came before it.
      def put(waiter)
        ahead = preferred?(waiter) ? [] : @waiting.each_key.take_while { |one| one.since < waiter.since || preferred?(one) }
        @waiting = [*ahead, waiter].to_h { |one| [one, true] }.compare_by_identity.merge!(@waiting)
      end

      def preferred?(waiter) = waiter.context.equal?(@preferred)

      def appoint
        @lookout = @waiting.reverse_each.first&.first
        return rest_briefly if @lookout.nil? # whoever waits next

        @wake = Line.clock
        @lookout.signal
      end

      def rest_briefly
        @nap = PATIENCE
        @look_at = nil
      end

      def look_out(waiter, now)
        @look_at ||= now + @nap
        wake = @wake = [@look_at, deadline(waiter), @due].compact.min
        @lock.wait_for_cond(waiter, wake - now) if wake > now
        return if (now = Line.clock) < wake

        wake_overdue(now) if @due && now >= @due
        @nap = yield ? PATIENCE : [@nap * 2, LONGEST_NAP].min
        @look_at = now + @nap if @lookout.equal?(waiter)
      end

      def wake_overdue(now)
        overdue, others = @waiting.keys.partition { |waiter| deadline(waiter) <= now }
        overdue.each(&:signal)
        @due = others.map { |waiter| deadline(waiter) }.min
      end
    end
  end
end
