# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # How many connections a pool should open while requests wait for one: not all it may, just because it may.
    #
    # The first ones are opened as they are needed. Beyond these, a pool grows by a half at most, as long as that helps:
    #
    # - A process that is at work all the time, or waits for a CPU, answers no more requests with more connections, and to
    #   open one takes it longer than hundreds of queries. It opens more only where no more than twice as many are enough
    #   for all: then none has to wait in line for each query, which costs time too.
    # - While it has nothing to do for part of the time, it grows by that part, and looks whether connections come back more
    #   often now. If they do not, then database or network can do no more: connections above that number only make each
    #   query slower. The pool goes back to what it had, and tries again later.
    #
    # Under the pool's lock; it knows no pool and no clock.
    class Growth
      # So many are opened without a look at the figures: as many as a process has use for that asks queries of 10 ms all the
      # time. With half of it, 128 clients of two of them waited for the rest of the growth.
      FREELY = 64
      # How many may be connecting at the same time, beside as many as are connected: it costs both sides CPU.
      CONNECTING = 8
      # For how many seconds to look: for the longer time where some connections have come back, but not yet as many as
      # there are. Where none has, queries take so long that the figures tell nothing: then it goes on.
      WINDOW = 0.1
      LONGEST_WINDOW = 1.0
      # What share of the time must be idle.
      IDLE = 0.2
      # What share of a half more must come back of a half more connections.
      GAIN = 0.2
      # In so many windows one after the other no more may wait than there are connections, before a busy process lets them
      # in, or half as many as there are: of many that come at once, only some wait at first. Of those beside the first ones
      # as many may come at once, and sooner. So many are opened at a time: while they are, all others have to wait for it.
      STEADY = 5
      SOON = 2
      BESIDE_WORK = 4
      # In so many windows one after the other: whatever else the machine does may spoil one.
      IN_VAIN = 2
      # Seconds until it tries again: twice as many after each time in vain, up to the most.
      REST = 4.0
      LONGEST_REST = 64.0

      # @return [Float] for how many seconds the threads of this process have run, or waited for a CPU, so far.
      def self.busy_time
        Dir.each_child("/proc/self/task").sum { |task| busy_time_of(task) }
      rescue SystemCallError
        Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
      end

      # https://docs.kernel.org/scheduler/sched-stats.html
      def self.busy_time_of(task)
        ran, waited = File.read("/proc/self/task/#{task}/schedstat").split
        (ran.to_i + waited.to_i) / 1e9
      rescue Errno::ENOENT, Errno::ESRCH
        0.0 # it has ended
      end
      private_class_method :busy_time_of

      # @return [Integer] how many connections it would do without.
      attr_reader :surplus

      def initialize
        @returned = 0
        @since = nil
        @size = 0
        @busy_time = nil
        @looked_at = nil
        @rested_at = 0.0
        @before = nil # the size before the last growth, and how often connections came back then
        @in_vain = 0
        @steady = @welcome = 0
        @rest = REST
        @surplus = 0
      end

      # A connection has come back.
      def returned = @returned += 1

      # One of the surplus has been closed.
      def closed = @surplus -= 1

      # @param size [Integer] connections, open or not yet.
      # @param connecting [Integer] of them, those that are not open yet.
      # @param wanted [Integer] how many wait.
      # @param now [Float]
      # @yieldreturn [Float] for how many seconds the process has been busy so far.
      # @return [Integer] how many more to open.
      def step(size, connecting, wanted, now, &busy_time)
        most = [CONNECTING, size - connecting].max - connecting
        return [wanted, most].min.clamp(0, FREELY) if size < FREELY
        return 0 if @surplus.positive?

        before, @looked_at = @looked_at, now
        gap = before.nil? || now - before > 3 * WINDOW
        @welcome = 0 if gap
        return let_in(connecting, wanted) if @welcome.positive?
        return 0 if connecting.positive?

        begin_window(size, now, &busy_time) if gap || @size != size
        return 0 unless full?(size, now - @since) && now >= @rested_at

        weigh(size, wanted, now, &busy_time)
      end

      private

      def begin_window(size, now)
        @size = size
        @since = now
        @busy_time = yield
        @returned = 0
      end

      def full?(size, seconds)
        seconds >= (@returned.zero? || @returned >= size ? WINDOW : LONGEST_WINDOW)
      end

      def weigh(size, wanted, now, &)
        rate = @returned / (now - @since)
        telling = @returned >= size
        busy_before, since = @busy_time, @since
        begin_window(size, now, &)
        idle = 1 - ((@busy_time - busy_before) / (now - since))
        return busy(size, wanted) if idle < IDLE
        return (@in_vain += 1) < IN_VAIN ? 0 : fall_back(size, now) if telling && in_vain?(size, rate)

        @rest = REST if @before && telling
        @in_vain = @steady = 0
        @before = [size, rate] if telling
        [wanted, wanted > size ? (size * [idle, 0.5].min).to_i : size / 2].min
      end

      # What was before it had its hands full says nothing later.
      def busy(size, wanted)
        @before = nil
        @in_vain = 0
        @steady = wanted > size ? 0 : @steady + 1
        first = size <= FREELY
        return 0 if @steady < (first ? SOON : STEADY)

        @steady = 0
        @welcome = first ? wanted : [wanted, size / 2].min
        let_in(0, wanted)
      end

      def let_in(connecting, wanted)
        count = [@welcome, wanted, BESIDE_WORK - connecting].min.clamp(0, BESIDE_WORK)
        @welcome -= count
        count
      end

      def in_vain?(size, rate)
        return false unless @before && @before[0] < size

        rate < @before[1] * (1 + GAIN * (size.fdiv(@before[0]) - 1))
      end

      def fall_back(size, now)
        @surplus = size - @before[0]
        @before = nil
        @in_vain = 0
        @rested_at = now + @rest
        @rest = [@rest * 2, LONGEST_REST].min
        0
      end
    end
  end
end
