# frozen_string_literal: true

# What apps may call.
module Fairlead
  class << self
    # @return [SharedPage, nil] the figures of all workers; set by the supervisor before it forks.
    # @api private
    attr_accessor :page

    # @return [Configuration, nil] of the server in this process; nil if nothing is served.
    # @api private
    attr_accessor :configuration

    # @return [Boolean] whether this process serves or is about to: true from the moment the command or the Rackup handler begins, before
    #   config.ru is loaded. Not in a console, a task or a migration.
    def serving?
      @serving ? true : false
    end

    # Call it where serving begins, before the app is loaded.
    #
    # @api private
    def serving!
      @serving = true
    end

    # Runs the block in another thread while the calling fiber waits. Use it for a call that blocks its thread or computes for long
    # (an image, a PDF, a driver that does not support fibers), so that other requests go on meanwhile.
    #
    # The block sees the caller's fiber storage (`Fiber[:x]`), fiber-locals (`Thread.current[:x]`) and ActiveSupport's isolated
    # state (`Current`, `Time.zone`). It has database connections of its own, returned at its end, and is outside of the caller's
    # transaction. What it uses has to be thread-safe.
    #
    # A worker has a few threads for such blocks (the option `offload_threads`); further blocks wait, first come, first served.
    # Within another offloaded block, and where no fiber scheduler runs (a console, a test, another server), the block runs in
    # place.
    #
    # If the caller stops waiting (a timeout, a cancelled request), a block that has not started never runs. A running block
    # continues to its end, since no thread can be interrupted safely anywhere, and its result is dropped.
    #
    # A call that holds Ruby's lock while it sleeps stops all threads: offloading does not help there.
    #
    # @example
    #   pdf = Fairlead.offload { Render.pdf(order) }
    # @yield in another thread
    # @return [Object] the block's result; its `next` works, `break` and `return` do not.
    # @raise what the block raises, with the caller's backtrace appended.
    def offload(&) = Offload.call(&)

    # Calls the block with each {Stall} of this process once it is over, in a thread of its own, after
    # `ActiveSupport::Notifications` has published it (as `stall.fairlead`).
    #
    # @example in config.ru
    #   Fairlead.on_stall { |stall| Metrics.timing("stall", stall.seconds, route: stall.route) }
    # @yieldparam stall [Stall]
    # @return [void]
    def on_stall(&block)
      (@stall_subscribers ||= []) << block
      nil
    end

    # @return [Array<Proc>]
    # @api private
    def stall_subscribers = @stall_subscribers || []

    # Calls the block with each request that has ended, in its own fiber, after `ActiveSupport::Notifications` has published it (as
    # `request.fairlead`). Call it, or subscribe, before the server starts.
    #
    # @example in config.ru
    #   Fairlead.on_request { |request| Metrics.timing("database", request[:times][:database].to_f, route: request[:route]) }
    # @yieldparam request [Hash] `{ id:, method:, path:, route:, status:, request_id:, duration:, queue:, times:, ended: }`, and for slow
    #   requests `sockets:` and `frames:`, the addresses and the lines of the app that they waited for longest. `duration:` is without
    #   the time in the queue (`queue:`), and `times:` has its parts by kind; all in seconds.
    # @return [void]
    def on_request(&block)
      (@request_subscribers ||= []) << block
      nil
    end

    # @return [Array<Proc>]
    # @api private
    def request_subscribers = @request_subscribers || []

    # Gives the current request another `request_timeout`, counted from now. Call it in the request, or in a task or thread that the
    # request has started. It has no effect outside of requests, or where the option is not set.
    #
    # @param seconds [Numeric, nil] nil: any time.
    # @raise [ArgumentError] unless it is a number above 0 and of at most 10^9 seconds.
    def request_timeout=(seconds)
      RequestDeadlines.current&.limit(seconds)
    end

    # What the workers do now, read from the page that they share. It is the same in the supervisor and in each worker, even a stuck
    # one, and costs about 20 µs a worker.
    #
    # @example in config.ru
    #   map("/waiting") { run ->(_) { [200, {}, [Fairlead.stats[:workers].sum { |worker| worker[:queued] }.to_s]] } }
    # @return [Hash] `{ workers: […], routes: […] }`, see {WorkerStats.of}; both are empty when nothing is served.
    def stats = page ? WorkerStats.of(page) : { workers: [], routes: [] }
  end
end
