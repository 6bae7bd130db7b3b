# frozen_string_literal: true

require_relative "scheduler"

module Fairlead
  # One Ruby thread that serves: a scheduler and its interchangeable serving fibers. One of them, the driver, turns the
  # loop; whoever has nothing to do takes the oldest ready request and runs it inline. Before it does, an idle sibling
  # goes on the scheduler's ready list, once a batch: if the request waits, the sibling carries on as driver.
  class Reactor
    # Seconds of requests in a row, after which fibers that can go on do so first.
    SLICE = 0.001
    # Seconds after which serving fibers that nobody needed meanwhile end.
    TRIM = 10
    private_constant :SLICE, :TRIM

    # An idle serving fiber's place. It is pushed instead of its fiber, so that it wakes only who rests in it.
    class Seat
      attr_accessor :called, :dismissed

      def initialize(fiber) = @fiber = fiber

      def alive? = @fiber.alive?

      def transfer(*) = (@fiber.transfer if @called)
    end

    # A serving fiber that is made when its turn comes, outside any request.
    class Newcomer
      def initialize(reactor) = @reactor = reactor

      def alive? = true

      def transfer(*) = @reactor.add_fiber
    end
    private_constant :Seat, :Newcomer

    # @param loop [Loop]
    # @yieldparam request [Request] answers it, in a serving fiber
    def initialize(loop, &answer)
      @loop = loop
      @answer = answer
      @idle = []
      @least_idle = 0
      @newcomer = Newcomer.new(self)
      @driving = @passed = @ended = false
      @turns = 0
      @to_do = []
    end

    # Serves until {#finish}. The calling thread must have no scheduler.
    #
    # @yield once it serves
    def run(&ready)
      @scheduler = Scheduler.new(@loop)
      @selector = @scheduler.selector
      @sliced_at = monotonic
      Fiber.set_scheduler(@scheduler)
      @scheduler.run do
        watch
        add_fiber
        ready&.call
      end
    ensure
      @ended = true
      @scheduler&.stop
      Fiber.set_scheduler(nil)
    end

    # @return [Scheduler]
    attr_reader :scheduler

    # Has the driver call this block after its present turn. Safe in any thread, and in a trap.
    def ask(&block)
      @to_do << block
      @loop.wake
    end

    # Ends {#run}. In the reactor's own thread.
    def finish
      @ended = true
      @scheduler.interrupt
    end

    # @return [Boolean] whether what still runs is being cancelled.
    def ending? = @ended || @scheduler.cancelled_all?

    # @api private
    def add_fiber
      Async::Task.new(@scheduler, annotation: "serving") do |task|
        @passed = false
        serve(task)
      end.run
    end

    private

    # The whole life of a serving fiber.
    def serve(task)
      state = FiberState.capture
      seat = Seat.new(Fiber.current)
      until @ended || seat.dismissed
        begin
          if (request = @loop.take)
            pass_the_lead unless @passed
            @answer.call(request)
            clean_up(task, state)
            give_way if @scheduler.others?
          elsif @driving
            rest(seat)
          else
            drive
          end
        rescue Async::Cancel
          # A task that an earlier request has left behind stops what it takes for its parent.
          raise if ending?
        end
      end
    end

    def pass_the_lead
      @passed = true
      seat = @idle.pop
      return @selector.push(@newcomer) unless seat

      @least_idle = @idle.size if @idle.size < @least_idle
      seat.called = true
      @selector.push(seat)
    end

    def rest(seat)
      @idle.push(seat)
      @scheduler.transfer until seat.called
    rescue Async::Cancel
      @idle.delete(seat)
      raise
    ensure
      seat.called = @passed = false if seat.called
    end

    # Turns the loop, and waits for the next thing to happen if there was nothing.
    def drive
      @driving = true
      takeable = @loop.turn
      told = @scheduler.tell
      @to_do.shift.call until @to_do.empty?
      return if @ended
      # Fibers that yield, or were pushed by the app, wait for nothing: they are not among the others that go first.
      return (@scheduler.yield if told || ((@turns += 1) & 63).zero?) if takeable.positive? || told

      trim_later if @idle.size > 8
      @selector.rest_driver
    ensure
      @driving = false
    end

    # What was started first ends first: fibers that can go on do so before new requests.
    def give_way
      now = monotonic
      return if now - @sliced_at < SLICE

      @scheduler.yield
      @sliced_at = monotonic
    end

    # The fiber is as it was at boot. Tasks that the request has left behind go on without it.
    def clean_up(task, state)
      task.children.to_a.each { |child| child.parent = @scheduler } if task.children?
      state.restore
    end

    # Fibers that nobody needed for some time end.
    def trim_later
      return if @trimming

      @trimming = true
      @least_idle = @idle.size
      @scheduler.after(TRIM) do
        @trimming = false
        trim
      end
    end

    def trim
      @idle.shift([@least_idle - 1, 0].max).each do |seat|
        seat.called = seat.dismissed = true
        @selector.push(seat)
      end
    end

    # While others wait for descriptors too, this task waits for the core's.
    def watch
      io = IO.for_fd(@loop.fileno, autoclose: false)
      Async::Task.new(@scheduler, transient: true, annotation: "watching the core") do
        until @ended
          @selector.watch(Fiber.current, io)
          @selector.push_driver
        end
      end.run
    end

    def monotonic = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
