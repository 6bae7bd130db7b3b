# frozen_string_literal: true

require "io/event"

module Fairlead
  # The selector of a reactor's scheduler: io-event's, which knows what fibers wait for, beside the core's own set,
  # which holds every HTTP socket. When no fiber waits for a descriptor, it waits in the core's set directly: a lone
  # connection must not pay for two.
  class Selector < (IO::Event::Selector.const_defined?(:EPoll) ? IO::Event::Selector::EPoll : IO::Event::Selector.default)
    # As it is without being counted.
    CORE_WAIT = superclass.instance_method(:io_wait)
    private_constant :CORE_WAIT

    # @return [Loop]
    attr_reader :loop
    # @return [Integer] how many fibers wait for a descriptor or a process.
    attr_reader :waiting

    def initialize(fiber, loop)
      super(fiber)
      @loop = loop
      @waiting = @follows = 0
      @waits = {}.compare_by_identity
      @sliced_at = @heir = @testator = @follower = @followed = nil
      @driver = @pushed = nil
      @pushed_driver = PushedDriver.new(self)
      @in_core = false
      @streams = 0
      @turn_ended = @turn_took = 0.0
    end

    # The driver on the ready list. A stream may have given it its turn before the list comes to it.
    PushedDriver = Struct.new(:selector) do
      def alive? = true

      def transfer(*) = selector.resume_pushed_driver
    end
    private_constant :PushedDriver

    # @return [Integer] how many streams this reactor serves.
    attr_accessor :streams
    # @return [Reactor]
    attr_writer :reactor

    # Seconds of new requests in each round, after which fibers that can go on do so first.
    SLICE = 0.001
    # Fibers in a round that go on since they were given something: two might pass it to each other for ever.
    MOST_FOLLOWS = 64
    # Seconds between two looks for the end of one of several processes.
    PAUSE = 0.01
    # Seconds that streams may have at a time, though a request before them took longer.
    LONGEST_TURN = 0.05
    private_constant :SLICE, :MOST_FOLLOWS, :PAUSE, :LONGEST_TURN

    # @return [Boolean]
    def slice_left?
      now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      now - (@sliced_at ||= now) < SLICE
    end

    # The present fiber names who has the lead next, if it has to wait: then, and only then, the heir goes on.
    #
    # @param heir [#transfer, nil] nil: nobody waits for it any more
    def bequeath(heir)
      @heir = heir
      @testator = heir && Fiber.current
    end

    # @return [Boolean] whether it has the lead next.
    def heir?(one) = @heir.equal?(one)

    # The present fiber has given something to another one of this thread, which goes on with the next round at the latest.
    #
    # @param wakeup [Scheduler::Wakeup]
    def follow_with(wakeup)
      push(@follower) if @follower
      @follower = wakeup
      @followed = Fiber.current
    end

    alias transfer_to_loop transfer

    # The present fiber has to wait. If it has named an heir, that one goes on at once: a round of the scheduler's for
    # each request that waits would cost as much as some of them. The same holds for one that has got something of it.
    def transfer
      return take_heir.transfer if pass_on?
      return follow unless @streams.positive? && pass_turn?

      (take_driver || take_heir).transfer
    end

    # New requests have had their turn: streams come next, for as long.
    def end_turn
      return unless @streams.positive?

      now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      @turn_took = @sliced_at ? [now - @sliced_at, LONGEST_TURN].min : 0.0
      @turn_ended = now
    end

    # @api private
    def resume_pushed_driver
      return unless (driver = @pushed)

      @pushed = nil
      driver.transfer
    end

    # The driver waits here until the core has something for it.
    #
    # @return [Boolean, nil] true if it waited in the core's set, which has then taken in what there was.
    def rest_driver
      end_turn
      @driver = Fiber.current
      transfer_to_loop
    ensure
      @driver = @pushed = nil # an exception may have ended its rest, and the ready list must not come back to it
    end

    # To be called when the core's descriptor is readable.
    def push_driver
      return unless (driver = @driver)

      @driver = nil
      @pushed = driver
      push(@pushed_driver)
    end

    def select(interval)
      @sliced_at = nil
      @follows = 0
      release_follower if @follower
      @reactor.keep_spares if @streams.positive?
      @loop.settle
      return inherit { super(0) } if @heir && @driver.nil?
      return super if @waiting.positive? || @driver.nil?

      # Set first: who pushes a fiber from another thread from here on also wakes the core.
      @in_core = true
      return super if ready?

      happened = @loop.wait(interval)
      return super if happened.nil? # another reactor leads by now

      resume_driver if happened
      0
    ensure
      @in_core = false
    end

    def wakeup
      @loop.wake if @in_core
      super
    end

    def io_wait(fiber, io, events) = wait_for(fiber, io) { super }

    # The core's descriptor itself: does not count.
    def watch(fiber, io) = CORE_WAIT.bind_call(self, fiber, io, IO::READABLE)

    if method_defined?(:io_read)
      def io_read(fiber, io, *arguments) = wait_for(fiber, io) { super }

      def io_write(fiber, io, *arguments) = wait_for(fiber, io) { super }
    end

    # @return [Fiber, Array<Fiber>, nil] who waits for an IO.
    def waiting_for(io) = @waits[io]

    # io-event knows the descriptor of a process by its number and the process' id: waited for again after an interruption, it
    # is taken for registered, though it was closed meanwhile, and nobody is ever woken. An IO is never another one.
    #
    # @return [Process::Status]
    def process_wait(fiber, pid, flags)
      descriptor = Platform.process_descriptor(pid) if pid.positive? && flags.zero?
      io = IO.for_fd(descriptor) if descriptor
      until (status = Process::Status.wait(pid, flags | Process::WNOHANG))
        io ? io_wait(fiber, io, IO::READABLE) : sleep(PAUSE)
      end
      status
    ensure
      io&.close
    end

    private

    def wait_for(fiber, io)
      ClosedIO.await_close(io)
      begin
        begin_wait(fiber, io)
        yield
      ensure
        end_wait(fiber, io)
      end
    end

    def begin_wait(fiber, io)
      @waiting += 1
      others = @waits[io]
      @waits[io] = others ? [*others, fiber] : fiber
    end

    def end_wait(fiber, io)
      @waiting -= 1
      fiber.fairlead_waits = (fiber.fairlead_waits || 0) + 1
      waiting = @waits.delete(io)
      return if waiting.equal?(fiber)

      others = waiting - [fiber]
      @waits[io] = others.one? ? others.first : others
    end

    # Whether the heir of the present fiber, which has to wait, goes on at once.
    def pass_on? = @heir&.direct? && @testator.equal?(Fiber.current) && slice_left?

    # Beside streams, new requests have a turn again, in the midst of a round, once streams have had as much time as they had
    # before. Else hundreds of streams, whose wake-ups are short each, would take all.
    def pass_turn?
      return false unless @driver || @pushed || @heir&.direct?

      now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      return false unless now - @turn_ended > [@turn_took, SLICE].max && Reactor.stream?(Fiber.current)

      @sliced_at = now
      true
    end

    def take_driver
      driver = @driver || @pushed
      @driver = @pushed = nil
      driver
    end

    def take_heir
      heir = @heir
      @heir = nil
      heir
    end

    def follow
      wakeup = @follower
      return transfer_to_loop unless wakeup && @followed.equal?(Fiber.current) && (@follows += 1) <= MOST_FOLLOWS

      @follower = @followed = nil
      wakeup.alive? ? wakeup.transfer : transfer_to_loop
    end

    def release_follower
      push(@follower)
      @follower = @followed = nil
    end

    # Whoever named the heir waits, or rests. Fibers that can go on do so first.
    def inherit
      yield
      return 0 unless @heir

      @sliced_at = Process.clock_gettime(Process::CLOCK_MONOTONIC) if @streams.positive?
      take_heir.transfer
      1
    end

    def resume_driver
      return unless (driver = @driver)

      @driver = nil
      @in_core = false
      driver.transfer(true)
    end
  end
end
