# frozen_string_literal: true

require "io/event"

module Fairlead
  # The selector of a reactor's scheduler: io-event's, which knows what fibers wait for, beside the core's own set, which holds
  # every HTTP socket. When no fiber waits for a descriptor, it waits in the core's set directly: a lone connection must not pay
  # for two. Which fiber goes on instead of one that waits is the {Lead}'s to say.
  class Selector < Compatibility.selector
    # Seconds between two looks for the end of one of several processes.
    PAUSE = 0.01
    # Seconds for which the CPU time of what waits for no turn is measured, after a round in which it took long: that clock costs more than
    # a switch of fibers.
    MEASURED = 1
    # As it is without being counted.
    CORE_WAIT = superclass.instance_method(:io_wait)
    private_constant :PAUSE, :MEASURED, :CORE_WAIT

    # @return [WaitSampler] told when a request waits.
    attr_writer :sampler
    # @return [Loop]
    attr_reader :loop
    # @return [Turns]
    attr_reader :turns
    # @return [Integer] how many fibers wait for a descriptor or a process.
    attr_reader :waiting

    def initialize(fiber, loop)
      super(fiber)
      @loop = loop
      @waiting = 0
      @waits = {}.compare_by_identity
      @measured_until = 0.0
    end

    # @param reactor [Reactor] whose scheduler has this selector.
    def serve(reactor)
      @reactor = reactor
      @lead = reactor.lead
      @turns = reactor.turns
    end

    alias transfer_to_loop transfer

    # The present fiber has to wait. A round of the scheduler's for each request that waits would cost as much as some of them: so
    # the next fiber may go on at once.
    def transfer
      (next_one = @lead.successor) ? next_one.resume : transfer_to_loop
    end

    def select(interval)
      @turns.begin_round
      @loop.prepare_wait(@turns.queued?)
      if @lead.open? || @turns.queued? || ready?
        began_at = Clock.now
        computed = Clock.thread_cpu_without_gc if began_at < @measured_until
        super(0)
        late = Clock.now - began_at > Turns::SLICE
        @measured_until = began_at + MEASURED if late
        return have_turns(computed, late)
      end
      unless @waiting.positive? || !@lead.enter_core
        happened = wait_in_core(interval)
        return @lead.resume(true) if happened
        return unless happened.nil? # a fiber is ready, or another reactor leads by now
      end
      super
      @turns.run_requests
    end

    def wakeup
      @loop.wake if @lead&.in_core? # another thread may call while the reactor is being assembled
      super
    end

    def io_wait(fiber, io, events) = wait_for(fiber, io) { |registered| super(fiber, registered, events) }

    # The core's descriptor itself: does not count.
    def watch(fiber, io) = CORE_WAIT.bind_call(self, fiber, io, IO::READABLE)

    if method_defined?(:io_read)
      def io_read(fiber, io, *arguments)
        return SharedFiles.read(io, *arguments) unless io.nonblock?

        wait_for(fiber, io) { |registered| super(fiber, registered, *arguments) }
      end

      def io_write(fiber, io, *arguments)
        return SharedFiles.write(io, *arguments) unless io.nonblock?

        wait_for(fiber, io) { |registered| super(fiber, registered, *arguments) }
      end
    end

    # @return [Hash{IO => Fiber, Array<Fiber>}] a copy: safe in any thread.
    def waits = @waits.dup

    # @return [Fiber, Array<Fiber>, nil] the fibers that wait for an IO.
    def waiting_for(io) = @waits[io]

    # io-event knows the descriptor of a process by its number and the process' id. Waited for again after an interruption, it is
    # taken for registered, though it was closed meanwhile, and nobody is ever woken. An IO is never another one.
    #
    # @return [Process::Status]
    def process_wait(fiber, pid, flags) = RequestTimes.during(RequestTimes::OTHER) { await_process(fiber, pid, flags) }

    private

    # All that can go on does so, or has done so: what waits for no turn.
    #
    # @param computed [Float, nil] of the thread's CPU clock, before that; nil: not known
    # @param late [Boolean] whether that took long
    def have_turns(computed, late)
      @turns.run_requests(computed ? Clock.thread_cpu_without_gc - computed : 0.0)
      @lead.begin_requests(late)
      @turns.run_streams
    end

    def await_process(fiber, pid, flags)
      descriptor = Platform.process_descriptor(pid) if pid.positive? && flags.zero?
      io = IO.for_fd(descriptor) if descriptor
      until (status = Process::Status.wait(pid, flags | Process::WNOHANG))
        io ? io_wait(fiber, io, IO::READABLE) : sleep(PAUSE)
      end
      status
    ensure
      io&.close
    end

    # From Lead#enter_core on, a thread that pushes a fiber also wakes the core.
    def wait_in_core(interval)
      @loop.wait(interval) unless ready?
    ensure
      @lead.leave_core
    end

    def wait_for(fiber, io)
      ClosedIO.await_close(io)
      begin
        begin_wait(fiber, io)
        counted = RequestTimes.wait(kind = fiber.fairlead_waits_for || RequestTimes::SOCKET, nil)
        @sampler.arm if counted
        yield io.fairlead_stand_in || io
      ensure
        begin
          note_wait(fiber, io, kind) if counted
        ensure
          end_wait(fiber, io)
        end
      end
    end

    def note_wait(fiber, io, kind)
      long = RequestTimes.waited(kind)
      WaitNotes.add_socket(fiber, io, long) if long
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
  end
end
