# frozen_string_literal: true

require_relative "reactor"

module Fairlead
  # The reactors of a worker: one leads, the others stand by, each in a thread of its own. When the reactor that leads does not
  # come back to the loop, the core's watch thread gives the lead to another.
  class ReactorGroup
    # Reactors that stand by from the start.
    STANDBYS = 2
    # More than this are not created on need.
    MOST = 12
    # Ruby switches between threads that compute after a time slice; -3 makes it 12.5 ms instead of 100.
    PRIORITY = -3
    # What the watch thread goes by, in milliseconds: how often it looks where something is urgent; how long a reactor may be
    # away without the GVL, which is also how often it looks elsewhere, or twice that; holding it, asleep; holding it,
    # computing.
    WATCH = { tick: 2, blocked: 4, stuck: 7, computing: 60 }.freeze
    private_constant :STANDBYS, :MOST, :PRIORITY, :WATCH

    # @param loop [Loop]
    # @param handler [RequestHandler]
    # @param deadlines [RequestDeadlines] of the requests
    # @param lost [Numeric] seconds for which a request may keep a reactor away, until the worker is to be replaced; 0:
    #   for ever
    # @param drain [Numeric] seconds that it then has for its other requests,
    # @param drain_streams [Numeric] and for long-lived responses
    # @param stream_share [Float] see {Turns}
    def initialize(loop, handler, deadlines:, lost: 0, drain: 0, drain_streams: drain, stream_share: 0.5)
      @loop = loop
      @deadlines = deadlines
      @handler = handler
      @to_do = []
      @awaited = {}
      @threads = []
      @retiring = Thread::Mutex.new
      @stream_share = stream_share
      @first = new_reactor
      @reactors = [@first]
      @loop.watch({ **WATCH, lost: lost * 1000, drain: drain * 1000, drain_streams: drain_streams * 1000, priority: PRIORITY })
    end

    # Serves until {#finish}. No reactor is in the calling thread: it has usually loaded the app, and what an app does with `Thread.main`
    # must not be done to a thread that serves, as in other servers.
    #
    # @yield once it serves, in the first reactor's thread
    # @raise [Exception] what has ended that
    def run(&ready)
      first = start_first(&ready)
      await_end(first)
    ensure
      @ended = true
      @reactors.each { |reactor| reactor.finish unless reactor.ended? }
      first&.join if first&.alive?
      @threads.dup.each(&:join)
    end

    # Ends {#run}. Safe in any thread.
    def finish
      @finishing = true
      @first.finish
    end

    # @return [Boolean] whether what still runs is being cancelled.
    def ending? = @finishing || @ended || Fiber.scheduler.cancelled_all?

    # @return [Array<Selector>] of the reactors that run.
    def selectors = @reactors.filter_map(&:selector)

    # Has the driver of the loop call this block after the present turn. Safe in any thread, and in a trap.
    def ask(&block)
      @to_do << block
      @loop.notify_driver
    end

    # Waits until the loop has news of a request: more of its body, or room for its response. From any thread; several fibers
    # may wait for one request, and all are woken.
    #
    # @param request [Request]
    # @yieldreturn [Boolean] whether there has been none since the request was asked.
    def await(request)
      waiter = Thread::Queue.new # of its own: from a common one, who waits again would take what woke another
      (@awaited[request.id] ||= []) << waiter
      # Threads that begin and end waits at the same time may miss each other, so each looks again after a while.
      RequestTimes.during(RequestTimes::WRITE) { waiter.pop(timeout: 1) } if yield
    ensure
      stop_waiting(request.id, waiter)
    end

    # Has all who wait for a request look again. Safe in any thread.
    #
    # @param id [Integer] the request's
    def wake(id) = @awaited.delete(id)&.each { |waiter| waiter.push(true) }

    # @api private
    # Calls what {#ask} has brought, and wakes those that {#await} news. Called by the driver, after each turn of the loop.
    #
    # @return [Boolean] whether any fiber was woken.
    def after_turn
      id = @loop.woken # first: what is asked for from here on is seen to next time
      while (block = @to_do.shift) # another reactor may lead by now, and take from it too
        block.call
      end
      woke = @deadlines.interrupt_expired
      while id
        wake(id)
        woke = true
        id = @loop.woken
      end
      @on_rejections&.call if id == false
      woke
    end

    # Has the driver call this block when the loop has rejected requests (see Loop#rejections).
    def on_rejections(&block)
      @on_rejections = block
    end

    # @api private
    # Another reactor has to stand by. Called by one that has just got the lead, or something to do for a lane.
    def lead_taken
      add_standby if @loop.standbys.zero? && @reactors.size < MOST && !@ended
    end

    # @api private
    # @param reactor [Reactor]
    # @return [Boolean] whether it may have to end: more stand by than at the start. The first stays.
    def surplus?(reactor) = @reactors.size > 1 + STANDBYS && !reactor.equal?(@first)

    # @api private
    # Called by a reactor that has had nothing to do for some time.
    #
    # @return [Boolean] whether it has to end: enough others stand by. It gets neither lead nor lane from then on.
    def retire_if_surplus
      @retiring.synchronize { @loop.standbys > STANDBYS && @loop.retire }
    end

    # @api private
    # Called by a reactor that does not end, though more stand by than at the start: it may lead for as long as it likes.
    def have_others_check(reactor)
      @reactors.each { |other| other.check_surplus unless other.equal?(reactor) }
    end

    private

    def new_reactor = Reactor.new(@loop, self, @handler, stream_share: @stream_share)

    def stop_waiting(id, waiter)
      waiters = @awaited[id] or return
      waiters.delete_if { |one| one.equal?(waiter) }
      @awaited.delete(id) if waiters.empty?
    end

    def start_first
      BareThread.start("fairlead server") do # whoever awaits its end gets its exception
        serve(@first) do
          STANDBYS.times { add_standby }
          @loop.start_watch
          yield if block_given?
        end
      end
    end

    # What a signal's handler raises, or another thread, ends nothing, also while the last such exception is reported.
    def await_end(thread)
      Thread.handle_interrupt(Object => :never) do
        Thread.handle_interrupt(Object => :immediate) { thread.join }
      rescue Exception => error
        raise unless thread.alive?

        report_foreign(error)
        retry
      end
    end

    def report_foreign(error)
      Containment.report(self, error, "The thread that awaits the server's end has got this exception: the server goes on.")
    rescue Exception
      nil # of a signal's handler, which no mask holds back, or the log cannot be written
    end

    def add_standby
      reactor = new_reactor
      @reactors << reactor
      @threads << BareThread.start("fairlead reactor #{@reactors.size - 1}", report: true) { stand_by(reactor) }
      reactor.finish if @ended # {#run} may not have seen it
    rescue ThreadError
      @reactors.delete(reactor) # the system allows no more threads: the next one is tried when it is needed
    end

    # A thread sets its priority itself: one set from outside may come before that which each new thread gets.
    def serve(reactor, &)
      Thread.current.priority = PRIORITY
      reactor.run(&)
    end

    # The whole life of a standby's thread.
    def stand_by(reactor)
      serve(reactor)
    rescue Errno::EMFILE, Errno::ENFILE, FiberError
      nil # there are no descriptors or fibers left for one: likewise
    ensure
      @reactors.delete(reactor)
      @threads.delete(Thread.current)
    end
  end
end
