# frozen_string_literal: true

module Fairlead
  # Decides which serving fiber of a reactor drives the core's loop.
  #
  # One fiber, the owner, takes new requests and runs them inline. When there are none it drives: it turns the loop, then rests
  # until something happens. A request that never waits therefore costs no fiber switch. The lead passes to an idle serving fiber:
  #
  # - at once, when the owner waits in its request and new requests have time left in this round (see {Turns});
  # - in the round's turn of new requests, behind all requests that can go on, if it has not passed by then, or its owner has ended.
  #   If no serving fiber is idle, the reactor makes one: only the scheduler's own fiber may start a task.
  #
  # The core decides which reactor of a worker leads (Loop#leads?). In the others nobody owns the lead.
  #
  # Only the reactor's own thread may call these methods, except {#in_core?}.
  class Lead
    # What the owner does:
    #
    # - :away, nothing: another reactor leads, or this one ends;
    # - :open, serves a request, gives way to others, or has ended: whoever is idle may take the lead;
    # - :driving, turns the loop;
    # - :resting, waits until the scheduler's selector finds the core's descriptor readable;
    # - :in_core, waits like that, while the scheduler's own fiber waits in the core's set;
    # - :woken, is on the scheduler's ready list.
    #
    # @return [Symbol]
    attr_reader :state

    # @param reactor [Reactor]
    def initialize(reactor)
      @reactor = reactor
      @group = reactor.group
      @loop = reactor.loop
      @selector = reactor.selector
      @turns = reactor.turns
      @idle = reactor.idle
      @owner = nil
      @state = :away
      @drives = @taken = 0
    end

    # @return [Boolean] whether an idle fiber is to take the lead at the end of the round.
    def open? = @state == :open

    # @return [Boolean] whether a thread that wakes this reactor has to wake the core's wait.
    def in_core? = @state == :in_core

    # @param fiber [ServingFiber]
    def owner?(fiber) = @owner.equal?(fiber)

    # @return [Boolean] whether the fiber is to drive where there is no request for it.
    def drives?(fiber) = @owner.equal?(fiber) && @loop.leads?

    # Makes a fiber the owner.
    #
    # @param fiber [ServingFiber]
    # @return [ServingFiber]
    def pass_to(fiber)
      @state = :open
      @owner = fiber
    end

    # The core has given this reactor the lead, or a request of a lane.
    def claim = @state == :away ? @state = :open : wake_driver

    # The fiber takes no more requests for now: another reactor leads, or another fiber drives. A request that has just ended may
    # have made room for the next one.
    #
    # @param fiber [ServingFiber]
    def leave_to_others(fiber)
      return wake_for_requests unless @owner.equal?(fiber)

      @owner = nil
      @state = :away
    end

    # The fiber has ended.
    #
    # @param fiber [ServingFiber]
    def forget(fiber)
      @owner.equal?(fiber) ? @owner = nil : wake_for_requests
    end

    # @param fiber [ServingFiber]
    # @return [Request, nil] the oldest ready one. A fiber that is not the owner gets one only in the new requests' turn.
    def take_request(fiber)
      return unless (@owner.equal?(fiber) || @turns.slice_left?) && (request = @loop.take)

      @taken += 1
      request
    end

    # Of the owner: turns the loop, and rests if there is nothing to do.
    def drive
      @state = :driving
      # After one request alone since the core was waited in there is most likely nothing yet, and waiting looks too.
      takeable = @taken > 1 ? @loop.turn : @loop.takeable
      @taken = 0
      woke = @group.after_turn
      return if @reactor.ended?
      # Every 64th time there is a round for what {Scheduler#others?} does not know: a timer, for example.
      return (@selector.yield if woke || ((@drives += 1) & 63).zero?) if takeable.positive? || woke

      @idle.trim_later
      @taken = 2 unless rest # else the core has taken in what there was
      @loop.wake unless @loop.leads? # the reactor that leads by now has not heard of it
    ensure
      @state = :open unless @state == :away
    end

    # The core has something for the driver: it goes on with the next round.
    def wake_driver
      return unless @state == :resting

      @state = :woken
      @selector.push(self)
    end

    # On the ready list the lead stands for its driver, which may have gone on, or ended, before the list comes to it.
    def alive? = true

    # (see #alive?)
    def transfer(*) = (resume if @state == :woken)

    # Has the resting driver go on.
    #
    # @param took_in [Boolean, nil] whether the core's wait has taken in what there was.
    def resume(took_in = nil)
      @state = :driving
      @owner.fiber.transfer(took_in)
    end

    # @return [ServingFiber, nil] who goes on instead of the present fiber, which has to wait; nil: the scheduler's own fiber.
    def successor = (next_owner if @state == :open && @owner&.current? && @turns.slice_left?)

    # The scheduler waits in the core's set on behalf of the resting driver.
    #
    # @return [Boolean] whether there is one.
    def enter_core
      return false unless @state == :resting

      @state = :in_core
      true
    end

    # (see #enter_core)
    def leave_core = (@state = :resting if @state == :in_core)

    # Of the scheduler's own fiber, behind all requests that can go on in this round: new ones begin.
    #
    # @param late [Boolean] whether fibers that wait for no turn have taken long in this round
    def begin_requests(late)
      @turns.begin_requests
      # The selector may come to the core's descriptor late, among those of many streams. Or it finds nothing there, since the watch thread
      # has taken in what came while fibers computed. The driver looks for itself.
      resume if @state == :woken || (@state == :resting && (@turns.streams_queued? || late))
      find_owner
      find_owner while @state == :open && @loop.takeable.positive? && @turns.slice_left?
    end

    private

    # Where no fiber could be made to take the lead, the one that has become free takes it.
    def wake_for_requests
      case @state
      when :resting then wake_driver if @loop.takeable.positive?
      when :away then claim if @loop.leads?
      end
    end

    # @return [Boolean, nil] (see #resume)
    def rest
      @state = :resting
      @selector.transfer_to_loop
    end

    def find_owner
      return if @state != :open
      return @state = :away if @reactor.ending?

      (fiber = next_owner) ? fiber.resume : add_owner
    end

    def add_owner
      @reactor.add_fiber
    rescue FiberError # the system allows no more: some end meanwhile
      if @state == :open
        @state = :away
        @reactor.claim_later
      end
      raise
    end

    def next_owner = (fiber = @idle.pop) && pass_to(fiber)
  end
end
