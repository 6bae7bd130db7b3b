# frozen_string_literal: true

# The module, its errors, and where its parts are. The command loads this file and not "fairlead": an app's
# Gemfile then still loads "fairlead" itself, after Rails, and so gets the railtie.
require_relative "version"
require_relative "serving/autoload"
require_relative "fiber_safety/autoload"
require_relative "ipc/autoload"
require_relative "listening/autoload"
require_relative "supervision/autoload"
require_relative "hot_restart/autoload"
require_relative "integrations/autoload"
require_relative "connection_budget/autoload"
require_relative "stalls/autoload"
require_relative "control/autoload"

module Fairlead
  # What all errors of Fairlead have in common.
  class Error < StandardError; end

  # A mistake in the user's hands. The message is complete (what, where, remedy): it is printed without a
  # backtrace, and the process ends with status 1. A worker that raises it is not tried again.
  class ConfigurationError < Error; end

  # An app that could not be loaded, or workers that could not be started. Complete like ConfigurationError.
  class BootError < Error; end

  # Raised in a request whose `request_timeout` is up, where it waits, or at its next wait. Its client has been answered 504 by then: what
  # the app says after it reaches nobody, so it should clean up and end.
  #
  # It descends from RuntimeError, and not from Timeout::Error, because libraries go by that: ActiveRecord passes the
  # one on as it is, and Net::HTTP tries again after the other.
  class RequestTimeout < RuntimeError; end

  autoload :ActiveRecord, "fairlead/active_record"
  autoload :CLI, "fairlead/cli"
  autoload :ClientGone, "fairlead/fairlead"
  autoload :Clock, "fairlead/clock"
  autoload :Compatibility, "fairlead/compatibility"
  autoload :Configuration, "fairlead/configuration"
  autoload :Drivers, "fairlead/drivers"
  autoload :FiberOwner, "fairlead/fairlead"
  autoload :ErrorReport, "fairlead/error_report"
  autoload :Doctor, "fairlead/doctor"
  autoload :Log, "fairlead/log"
  autoload :Platform, "fairlead/fairlead"
  autoload :Pool, "fairlead/pool"
  autoload :SharedPage, "fairlead/fairlead"
  autoload :Signals, "fairlead/signals"

  class << self
    # @return [SharedPage, nil] the figures of all workers; set by the supervisor before it forks.
    # @api private
    attr_accessor :page

    # @return [Configuration, nil] what is being served, and how; nil if nothing is.
    # @api private
    attr_accessor :configuration

    # @return [Boolean] whether this process serves, or is about to: true from the moment the command or the
    #   Rackup handler begins, before config.ru is loaded. Not in a console, a task or a migration.
    def serving?
      @serving ? true : false
    end

    # Called by whoever begins to serve, before the app is loaded.
    def serving!
      @serving = true
    end

    # Runs the block in another thread, while the calling fiber waits: for a call that would block its thread, or
    # compute for long (an image, a PDF, a driver that knows no fibers), so that the requests beside it go on at once.
    #
    # The block finds the caller's fiber storage (`Fiber[:x]`), fiber-locals (`Thread.current[:x]`) and ActiveSupport's
    # isolated state (`Current`, `Time.zone`). It gets database connections of its own, given back at its end: an open
    # transaction of the caller is not its. Beside it, other threads run: what it uses has to be thread-safe.
    #
    # A worker has a few threads for it (the option `offload_threads`); blocks that find them busy wait, first come,
    # first served. Called within another offloaded block, or where no fiber scheduler runs (a console, a test, another
    # server), it runs the block in place.
    #
    # If the caller stops waiting (a timeout, a cancelled request), a block that has not begun is never run; one that
    # has begun goes on to its end, since a thread cannot be interrupted safely anywhere, and its result is dropped.
    #
    # What holds Ruby's lock while it sleeps stops other threads too: that is helped by no thread.
    #
    # @example
    #   pdf = Fairlead.offload { Render.pdf(order) }
    # @yield in another thread
    # @return [Object] what the block returns; its `next` works, `break` and `return` do not.
    # @raise what the block raises, with the caller's backtrace appended.
    def offload(&) = Offload.call(&)

    # Has the block called with each {Stall} of this process that is over, in a thread of its own, after
    # `ActiveSupport::Notifications` has been told of it (as `stall.fairlead`).
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

    # Gives the present request another `request_timeout`, counted from now. To be called in it, or in a task or thread
    # that it has started. Without effect where the option is not set, and outside requests.
    #
    # @param seconds [Numeric, nil] nil: it may take any time.
    # @raise [ArgumentError] for what is not more than 0, no number, or more than 10^9 seconds.
    def request_timeout=(seconds)
      RequestDeadlines.current&.limit(seconds)
    end

    # What the workers do now, read from the page they share: the same in the supervisor and in each worker, also of one that
    # is stuck. It costs about 20 µs a worker.
    #
    # @example in config.ru
    #   map("/waiting") { run ->(_) { [200, {}, [Fairlead.stats[:workers].sum { |worker| worker[:queued] }.to_s]] } }
    # @return [Hash] `{ workers: […], routes: […] }`, see {WorkerStats.of}; both empty when nothing is served.
    def stats = page ? WorkerStats.of(page) : { workers: [], routes: [] }
  end
end
