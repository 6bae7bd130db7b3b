# frozen_string_literal: true

require_relative "scheduler"
require_relative "serving_fiber"
require_relative "turns"
require_relative "idle_fibers"
require_relative "lead"

module Fairlead
  # One Ruby thread that serves: a scheduler, and its interchangeable serving fibers, of which one has the {Lead}. Of the reactors
  # of a worker one leads; the core tells it so.
  class Reactor
    # Seconds after which a reactor that stands by checks whether it is still needed.
    SURPLUS_CHECK = 5
    # Seconds until the lead is claimed again where no fiber could be made.
    CLAIM_AGAIN = 0.1
    private_constant :SURPLUS_CHECK, :CLAIM_AGAIN

    # @param loop [Loop]
    # @param group [ReactorGroup] the reactors of its worker.
    # @param handler [#call] answers a request, in a serving fiber
    # @param stream_share [Float] see {Turns}
    def initialize(loop, group, handler, stream_share:)
      @loop = loop
      @group = group
      @handler = handler
      @stream_share = stream_share
      @ended = false
    end

    # Its parts, once it runs, and what it was made with.
    attr_reader :loop, :group, :scheduler, :selector, :turns, :idle, :lead

    # Serves until {#finish}. The calling thread must have no scheduler.
    #
    # @yield once it serves
    # @raise [FiberError] if the system allows no fiber for its tasks.
    def run(&ready)
      assemble
      Fiber.set_scheduler(@scheduler)
      @scheduler.disable_fiber_interrupt
      Thread.current.fairlead_serves = true
      ClosedIO.selectors.push(@selector)
      lead_descriptor = @loop.register
      watch_core
      await_lead(lead_descriptor) if lead_descriptor
      add_fiber if @loop.leads?
      check_surplus_later
      ready&.call
      @scheduler.run
    ensure
      @ended = true
      Thread.current.fairlead_serves = false
      ClosedIO.selectors.delete(@selector)
      @scheduler&.stop
      Fiber.set_scheduler(nil)
      @loop.unregister
    end

    # Ends {#run}. Safe in any thread.
    def finish
      @ended = true
      @scheduler&.interrupt
    end

    # @return [Boolean] whether {#run} is to end.
    def ended? = @ended

    # @return [Boolean] whether what still runs is being cancelled.
    def ending? = @ended || @scheduler.cancelled_all?

    # Has it check, in a while, whether it is still needed. Safe in any thread.
    def check_surplus = @scheduler&.unblock(nil, ScheduledCall.new { check_surplus_later })

    # Makes a serving fiber, which takes the lead. To be called in the scheduler's own fiber.
    #
    # @raise [FiberError] if the system allows no more fibers.
    def add_fiber
      start(ServingFiber::Task, annotation: "serving") { |task| ServingFiber.new(self, task, @handler).run }
    end

    # No serving fiber could be made to take the lead.
    def claim_later
      @scheduler.after(CLAIM_AGAIN) { @lead.claim }
    end

    private

    def assemble
      @scheduler = Scheduler.new(@loop, @group)
      @selector = @scheduler.selector
      @turns = Turns.new(@stream_share, @loop, @selector)
      @idle = IdleFibers.new(self)
      @lead = Lead.new(self)
      @selector.serve(self)
    end

    def start(type = Async::Task, **options)
      started = false
      task = type.new(@scheduler, **options) do
        started = true
        yield task
      end
      task.run
    rescue FiberError
      task.parent = nil if task && !started # nothing could cancel it: the scheduler would never end
      raise
    end

    # While others wait for descriptors too, this task waits for the core's.
    def watch_core
      io = IO.for_fd(@loop.fileno, autoclose: false)
      start(transient: true, annotation: "watching the core") do
        until @ended
          @loop.leads? ? @selector.watch(Fiber.current, io) : await_change
          @lead.wake_driver
        end
      end
    end

    # The core's descriptor is not for a reactor that does not lead: it would be woken all the time.
    def await_change
      @watcher = Fiber.current
      @scheduler.transfer
    ensure
      @watcher = nil
    end

    # The watch thread writes to the descriptor when the lead may have come here, or something waits in the lane.
    def await_lead(descriptor)
      io = IO.for_fd(descriptor, autoclose: false)
      start(annotation: "awaiting the lead") do
        until @ended
          @selector.watch(Fiber.current, io)
          io.read_nonblock(8, exception: false)
          claim_lead if @loop.leads? || @loop.lane?
        end
      end
    end

    def claim_lead
      @group.lead_taken
      check_surplus_later
      @selector.push(@watcher) if @watcher && @loop.leads?
      @lead.claim
    end

    # Reactors that stood by at the start stay. Of the others, each ends itself while nothing else goes on in it.
    def check_surplus_later
      return if @checking || !@group.surplus?(self)

      @checking = true
      @scheduler.after(SURPLUS_CHECK) do
        @checking = false
        next finish if quiet? && @group.retire_if_surplus

        check_surplus_later
        @group.have_others_check(self) if @checking
      end
    end

    # Nothing but serving fibers that rest, and the two tasks that listen for the lead.
    def quiet? = @lead.state == :away && @scheduler.children.size == @idle.size + 2
  end
end
