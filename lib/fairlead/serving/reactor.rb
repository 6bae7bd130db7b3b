# frozen_string_literal: true

require_relative "scheduler"

# Of a serving fiber: see Fairlead::Reactor::Seat.
Fiber.attr_accessor :fairlead_seat

module Fairlead
  # One Ruby thread that serves: a scheduler and its interchangeable serving fibers. One of them has the lead: it turns
  # the loop, takes the ready requests, the oldest first, and runs them inline. Before it does, it names an idle sibling
  # its heir: if a request waits, the heir has the lead when its turn comes; if none does, no fiber is switched.
  class Reactor
    # Seconds after which serving fibers that nobody needed meanwhile end.
    TRIM = 3
    # Seconds after which a reactor that stands by looks whether it is still needed.
    LINGER = 5
    # How many serving fibers are idle at the beginning of each round, while there are streams: one for each request that waits.
    SPARES = (8..128)
    private_constant :TRIM, :LINGER, :SPARES

    # An idle serving fiber's place. It is pushed instead of its fiber, so that it wakes only who rests in it.
    class Seat
      attr_accessor :called, :dismissed
      # @return [Boolean, nil] whether the response of its request is a stream.
      attr_accessor :stream
      # @return [Request, nil] what its fiber is at work on.
      attr_accessor :request
      # @return [ThreadVariables, nil] of its request, if that has any.
      attr_accessor :thread_variables

      def initialize(fiber)
        @fiber = fiber
        fiber.fairlead_seat = self
      end

      def alive? = @fiber.alive?

      # Whether any fiber may transfer to it.
      def direct? = true

      def transfer(*) = (@fiber.transfer if @called && @fiber.alive?)
    end

    # What is put on the ready list for the loop's own fiber to call, outside any request.
    class Errand
      # @param name [Symbol] a method of the reactor's.
      def initialize(reactor, name)
        @reactor = reactor
        @name = name
      end

      def alive? = true

      # Who starts a task is put on the ready list: that must be the loop's own fiber, not one that waits.
      def direct? = false

      def transfer(*) = @reactor.public_send(@name)
    end

    # The task of a serving fiber. One that has left others behind ends, and they may hold it for long.
    class Serving < Async::Task
      # Of two that stop it once it has ended, each would stop the other one's stopping, which then begins anew, for ever.
      # Whoever comes second leaves it to the first.
      def cancel(...)
        return super if running?
        return if @cancelling

        begin
          @cancelling = true
          super
        ensure
          @cancelling = false
        end
      end

      # What is taken out of a list keeps what came after it there: whoever holds one ended task would hold all later ones.
      def consume
        super
        self.tail = nil unless parent
      end
    end
    private_constant :Seat, :Errand, :Serving

    # @return [Request, nil] that a fiber works for; a child task, or an enumerator, works for that of who began it.
    def self.request_of(fiber) = seat_of(fiber)&.request

    # @return [Boolean, nil] whether a fiber works for a stream.
    def self.stream?(fiber) = seat_of(fiber)&.stream

    def self.seat_of(fiber) = fiber.fairlead_seat || Fairlead.serving(fiber)&.fairlead_seat
    private_class_method :seat_of

    # The response of the present request has begun, or lives long: its waits are those of a stream from here on.
    def self.becomes_stream
      seat = Fiber.current.fairlead_seat
      return if seat.nil? || seat.stream

      seat.stream = true
      Fiber.scheduler.selector.streams += 1
    end

    # @param loop [Loop]
    # @param crew [ReactorGroup] the reactors of its worker, of which one leads.
    # @yieldparam request [Request] answers it, in a serving fiber
    def initialize(loop, crew, &answer)
      @loop = loop
      @crew = crew
      @answer = answer
      @idle = []
      @least_idle = 0
      @newcomer = Errand.new(self, :add_fiber) # a serving fiber that is made when its turn comes
      @driving = @passed = @ended = false
      @turns = @taken = 0
    end

    # Serves until {#finish}. The calling thread must have no scheduler.
    #
    # @yield once it serves
    def run(&ready)
      @scheduler = Scheduler.new(@loop, @crew)
      @selector = @scheduler.selector
      @selector.reactor = self
      Fiber.set_scheduler(@scheduler)
      @scheduler.disable_fiber_interrupt
      Thread.current.fairlead_serves = true
      ClosedIO.selectors.push(@selector)
      lead = @loop.enter
      @scheduler.run do
        watch
        await_lead(lead) if lead
        add_fiber if @loop.leads?
        look_later
        ready&.call
      end
    ensure
      @ended = true
      Thread.current.fairlead_serves = false
      ClosedIO.selectors.delete(@selector)
      @scheduler&.stop
      Fiber.set_scheduler(nil)
      @loop.leave
    end

    # @return [Scheduler]
    attr_reader :scheduler

    # Ends {#run}. Safe in any thread.
    def finish
      @ended = true
      @scheduler&.interrupt
    end

    # @return [Boolean] whether what still runs is being cancelled.
    def ending? = @ended || @scheduler.cancelled_all?

    # Has it look, in a while, whether it is still needed. Safe in any thread.
    def have_look = @scheduler&.unblock(nil, Errand.new(self, :look_later))

    # @api private
    # Those that stood by at the start stay; of the others, it ends itself, while nothing else goes on in it.
    def look_later
      return if @looking || !@crew.crowded?(self)

      @looking = true
      @scheduler.after(LINGER) do
        @looking = false
        next finish if quiet? && @crew.spare?

        look_later
        @crew.have_others_look(self) if @looking
      end
    end

    # @api private
    # Makes a serving fiber, in the loop's own fiber.
    #
    # @param spare [Boolean] it rests, instead of taking the lead
    def add_fiber(spare: false)
      Serving.new(@scheduler, annotation: "serving") do |task|
        seat = Seat.new(Fiber.current)
        FiberOwner.own_state
        spare ? rest(seat) : called(seat)
        serve(task, seat)
      ensure
        succeed(seat) unless ending?
      end.run
    end

    # @api private
    # Beside streams, new requests are begun in the midst of a round, where no fiber can be made for them.
    def keep_spares
      return unless @loop.leads?

      wanted = @loop.takeable.clamp(SPARES)
      add_fiber(spare: true) while @idle.size < wanted && !ending?
    end

    private

    # The whole life of a serving fiber.
    def serve(task, seat)
      state = FiberState.capture
      act(task, seat, state) until @ended || seat.dismissed
    end

    # A method of its own: YJIT compiles methods that are called often, not loops that never end.
    def act(task, seat, state)
      leading = @leader.equal?(seat)
      if (leading || slice_left?) && (request = @loop.take)
        @taken += 1
        pass_the_lead if leading && !@passed
        seat.request = request # whoever tells of a stall looks there
        @answer.call(request)
        seat.request = nil
        end_stream(seat) if seat.stream
        clean_up(task, seat, state)
        give_way(seat) if @scheduler.others? && !seat.dismissed
      elsif leading && @loop.leads?
        drive
      else
        # There is more to take where its request was one of a pipeline, or has made room for another one.
        @selector.push_driver if @driving && @loop.takeable.positive?
        rest(seat)
      end
    rescue Async::Cancel
      seat.request = nil
      end_stream(seat) if seat.stream
      # A task of an earlier request, that has another parent, stops what was that request's.
      raise if ending?
    end

    def end_stream(seat)
      seat.stream = false
      @selector.streams -= 1
    end

    # It has ended, by an error of ours, or since it has left tasks behind: others do what it would have done next.
    def succeed(seat)
      end_stream(seat) if seat.stream
      pass_the_lead if @leader.equal?(seat) && !@passed
      @selector.push_driver if @driving && @loop.takeable.positive?
    end

    def pass_the_lead
      @passed = true
      seat = @idle.pop
      return @selector.bequeath(@newcomer) unless seat

      @least_idle = @idle.size if @idle.size < @least_idle
      seat.called = true
      @selector.bequeath(seat)
    end

    def rest(seat)
      @idle.push(seat)
      @selector.transfer_to_loop until seat.called
    rescue Exception # nobody can be meant but a request that is over
      @idle.delete(seat)
      raise
    ensure
      called(seat) if seat.called
    end

    # It has the lead now, unless there is a driver after all.
    def called(seat)
      seat.called = false
      return if seat.dismissed # the lead is another one's business

      @passed = false
      @selector.bequeath(nil)
      @leader = seat unless @driving
    end

    # Turns the loop, and waits for the next thing to happen if there was nothing.
    def drive
      @driving = true
      # After one request alone since the core was waited in there is most likely nothing yet, and waiting looks too.
      takeable = @taken > 1 ? @loop.turn : @loop.takeable
      @taken = 0
      told = @crew.attend
      return if @ended
      # Fibers that yield, or were pushed by the app, wait for nothing: they are not among the others that go first.
      return (@scheduler.yield if told || ((@turns += 1) & 63).zero?) if takeable.positive? || told

      trim_later if @idle.size > 8
      @taken = 2 unless @selector.rest_driver # else the core has taken in what there was
      @loop.wake unless @loop.leads? # another one leads meanwhile, and has not heard of it
    ensure
      @driving = false
    end

    # What was started first ends first: fibers that can go on do so before new requests, which the heir takes after them.
    def give_way(seat)
      return if !@leader.equal?(seat) || slice_left?

      @selector.end_turn
      @selector.heir?(@newcomer) ? stay_heir(seat) : rest(seat)
    end

    # No serving fiber is idle: the leader itself goes on after the others, and none has to be made.
    def stay_heir(seat)
      seat.called = true
      @selector.bequeath(seat)
      @selector.transfer_to_loop while @selector.heir?(seat)
    ensure
      called(seat)
    end

    def slice_left? = @selector.slice_left?

    # The fiber is as it was at boot.
    def clean_up(task, seat, state)
      leave_behind(seat) if task.children?
      seat.thread_variables&.clear
      Uninterruptible.forget(Fiber.current)
      state.restore
    end

    # Tasks go on without the request, with what they have inherited of it. Its fiber ends, and its task with it: what they
    # may do to either would be done to a later request.
    def leave_behind(seat)
      seat.dismissed = true
      seat.thread_variables = nil
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
      trim_later if @idle.size > 8
    end

    # While others wait for descriptors too, this task waits for the core's.
    def watch
      io = IO.for_fd(@loop.fileno, autoclose: false)
      Async::Task.new(@scheduler, transient: true, annotation: "watching the core") do
        until @ended
          @loop.leads? ? @selector.watch(Fiber.current, io) : await_change
          @selector.push_driver
        end
      end.run
    end

    # The core's descriptor is not for a reactor that does not lead: it would be woken all the time.
    def await_change
      @watcher = Fiber.current
      @scheduler.transfer
    ensure
      @watcher = nil
    end

    # The watch thread tells that the lead may have come here, or that something waits in the lane.
    def await_lead(descriptor)
      io = IO.for_fd(descriptor, autoclose: false)
      Async::Task.new(@scheduler, annotation: "awaiting the lead") do
        until @ended
          @selector.watch(Fiber.current, io)
          io.read_nonblock(8, exception: false)
          lead if @loop.leads? || @loop.lane?
        end
      end.run
    end

    # Nothing but serving fibers that rest, and the two that listen for the lead.
    def quiet? = !@driving && @scheduler.children.size == @idle.size + 2

    def lead
      @crew.lead_taken
      look_later
      @selector.push(@watcher) if @watcher && @loop.leads?
      return @selector.push_driver if @driving # it rests since it led before

      pass_the_lead unless @passed
    end
  end
end
