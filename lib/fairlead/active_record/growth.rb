# frozen_string_literal: true

module Fairlead
  module ActiveRecord
    # How many connections a pool should open while requests wait for one: not all it may, just because it may.
    #
    # The first ones are opened as they are needed. Beyond these, a pool grows as long as that helps:
    #
    # - While there is nothing to do for part of the time, it grows by that part, by a half at most, one at a time unless that
    #   is most of it, and looks whether connections come back more often now. If they do not, then database or network can
    #   do no more: connections above that number only make each query slower. The pool goes back to what it had, and tries
    #   again later.
    # - A process that is at work all the time, or waits for a CPU, gains less, and to open a connection may take it longer
    #   than hundreds of queries. Nor does one gain more whose machine is: the database may be what it waits for. It lets in
    #   those who wait where there are no more of them than first ones: then none has to stand in line for each query, which
    #   costs time too. Else it tries twice as many, the more seldom the longer that takes, and looks whether it has helped.
    #
    # Under the pool's lock; it knows no pool and no clock.
    class Growth
      autoload :Cost, "fairlead/active_record/growth/cost"
      autoload :Look, "fairlead/active_record/growth/look"

      # So many are opened without a look at the figures: as many as a process has use for that asks queries of 10 ms all the
      # time. With half of it, 128 clients of two of them waited for the rest of the growth.
      FREELY = 64
      # How many may be connecting at the same time, beside as many as are connected: it costs both sides CPU.
      CONNECTING = 8
      # For how many seconds to look: for the longer time where some connections have come back, but not yet as many as
      # there are. Where none has, queries take so long that the figures tell nothing: then it goes on.
      WINDOW = 0.25
      LONGEST_WINDOW = 1.0
      # What share of the time must be idle; and what share, to open several at once.
      IDLE = 0.2
      LEISURE = 0.5
      # What share of a half more must come back of a half more connections.
      GAIN = 0.5
      # The same while it is at work, where a turn of the reactor serves more of them: for 256 requests with queries of 10 ms,
      # MariaDB's came back a fifth more often from 96 than from 64, a third from 192; PostgreSQL's a seventh from 128.
      GAIN_AT_WORK = 0.05
      # For how many seconds a process at work may open connections beyond the first ones; for longer, if that is no more than
      # this share of its time.
      TRIFLE = 0.2
      SHARE = 0.02
      # So many times as many connections must be open, or of a process at work nothing is told.
      TELLING = 1.25
      # For so many windows one after the other a process at work looks how often connections come back. In so many no more
      # may wait than there are first ones, before it lets them in: of many that come at once, only some wait at first.
      STEADY = 5
      SOON = 2
      # Seconds: as many are opened at a time as take no longer. None is opened for so many times as long as the last ones
      # took then: all others had to wait for them.
      TOGETHER = 0.03
      PAUSE = 2
      # In so many windows one after the other: whatever else the machine does may spoil one.
      IN_VAIN = 2
      # Seconds until it tries again: twice as many after each time in vain, up to the most.
      REST = 4.0
      LONGEST_REST = 256.0

      # @return [Integer] how many connections it would do without.
      attr_reader :surplus

      def initialize
        @returned = 0
        @since = nil
        @size = 0
        @looked_at = nil
        @rested_at = 0.0
        @before = nil # the size before the last growth, and how often connections came back then
        @at_work = false
        @in_vain = 0
        @look = nil
        @cost = Cost.new
        @welcome = 0
        @opened_at = nil
        @next_at = 0.0
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
      # @yieldreturn [Array(Float, Float)] of the time since the last yield: what share of it there was nothing to do, and
      #   for how many seconds this process ran on a CPU.
      # @return [Integer] how many more to open.
      def step(size, connecting, wanted, now, &)
        @cost.look(size - connecting, connecting, now)
        more(size, connecting, wanted, now, &).tap { |count| @cost.start(now) if count.positive? }
      end

      private

      def more(size, connecting, wanted, now, &idleness)
        most = [CONNECTING, size - connecting].max - connecting
        return [wanted, most].min.clamp(0, FREELY) if size < FREELY
        return 0 if @surplus.positive?

        before, @looked_at = @looked_at, now
        gap = before.nil? || now - before > 3 * WINDOW
        @welcome, @opened_at = 0, nil if gap
        return 0 if connecting.positive?

        @next_at, @opened_at = now + (PAUSE * (now - @opened_at)), nil if @opened_at
        return let_in(now) if @welcome.positive?

        begin_window(size, now, &idleness) if gap || @size != size
        return 0 unless full?(size, now - @since) && now >= @rested_at

        weigh(size, wanted, now, &idleness)
      end

      def begin_window(size, now)
        @size = size
        @since = now
        @returned = 0
        yield
      end

      def full?(size, seconds)
        seconds >= (@returned.zero? || @returned >= size ? WINDOW : LONGEST_WINDOW)
      end

      def weigh(size, wanted, now, &)
        returned, seconds = @returned, now - @since
        idle, ran = begin_window(size, now, &)
        change_to(idle < IDLE)
        seen = [returned, seconds, ran, wanted]
        return look_on(size, wanted, now, seen) if @at_work

        telling = returned >= size
        look = Look.new(size).add(*seen)
        vain = telling && @before && @before.size < size && look.vain?(@before, GAIN)
        return (@in_vain += 1) < IN_VAIN ? 0 : fall_back(size, now) if vain

        @rest = REST if @before && telling
        @in_vain = 0
        @before = look if telling
        count = [wanted, wanted > size ? (size * [idle, 0.5].min).to_i : size / 2].min
        return count if idle > LEISURE

        welcome(count, now)
      end

      # What was before it had its hands full says nothing later, nor the other way round.
      def change_to(at_work)
        return if @at_work == at_work

        @at_work = at_work
        @before = @look = nil
        @in_vain = 0
      end

      def look_on(size, wanted, now, seen)
        @look = Look.new(size) unless @look&.size == size
        @look.add(*seen)
        told = @before && size >= @before.size * TELLING
        vain = told && (@look.own? ? @look.dearer?(@before) : @look.vain?(@before, GAIN_AT_WORK))
        return fall_back(size, now) if vain && @look.windows >= IN_VAIN * STEADY

        count = [wanted, size].min
        steady = !vain && @look.windows >= STEADY && @look.affords?(count * @cost.each)
        return 0 unless steady || (size <= FREELY && @look.few >= SOON)

        @rest = REST if told
        @before = @look if compared_from_here_on?(size, told)
        @look = nil
        welcome(count, now)
      end

      # Neither small growths nor small losses shall add up unseen.
      def compared_from_here_on?(size, told)
        return told && !@look.loses?(@before) if @before && @before.size < size

        true
      end

      def welcome(count, now)
        @welcome = count
        let_in(now)
      end

      def let_in(now)
        return 0 if now < @next_at

        @opened_at = now
        [@welcome, [TOGETHER / @cost.each, 1].max.to_i].min.tap { |count| @welcome -= count }
      end

      def fall_back(size, now)
        @surplus = size - @before.size
        @before = nil
        @in_vain = 0
        @rested_at = now + @rest
        @rest = [@rest * 2, LONGEST_REST].min
        0
      end
    end
  end
end
