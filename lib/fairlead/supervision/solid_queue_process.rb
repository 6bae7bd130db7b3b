# frozen_string_literal: true

require_relative "../parts"

module Fairlead
  # Solid Queue beside the workers: a process of its own that the supervisor starts, stops, and starts again if it ends
  # unasked (the option `solid_queue`).
  #
  # A process that serves requests itself (`workers 0`) must not be forked meanwhile: its requests are in the middle of
  # database connections, locks and sockets. It forks a host before it serves, a process that does nothing but start Solid
  # Queue, and start it again.
  #
  # Nothing here waits. {#attend} does what is due, and {#deadline} says when there will be more; the end of a child is
  # an event that its parent hears of by SIGCHLD.
  class SolidQueueProcess
    # Seconds until it is started again, if it has not ended before.
    FIRST_DELAY = 1.0
    private_constant :FIRST_DELAY

    # @param hosted [Boolean] whether this process will serve requests.
    # @return [SolidQueueProcess, nil] nil if it is not asked for.
    # @raise [ConfigurationError] if the app, loaded already, has no Solid Queue.
    def self.for(configuration, app, hosted: false)
      return if configuration.solid_queue == "off"
      raise ConfigurationError, missing(configuration) if app && !defined?(::SolidQueue)

      new(configuration, app, hosted:)
    end

    # @return [String]
    def self.missing(configuration)
      "#{configuration.source(:solid_queue)}: `solid_queue` is #{configuration.solid_queue.inspect}, and the app has no " \
        "Solid Queue. Add the gem solid_queue to the Gemfile, or remove the line."
    end

    def initialize(configuration, app, hosted: false)
      @configuration = configuration
      @app = app
      @hosted = hosted
      @backoff = Backoff.new(FIRST_DELAY)
    end

    # @return [Integer, nil] its process, while there is one.
    attr_reader :pid

    # Starts it, hears of its end, and ends it if the server stops.
    #
    # @param now [Float] seconds of the monotonic clock.
    # @param stopping [Boolean]
    # @yield in the new process, to leave behind what is its parent's
    def attend(now, stopping: false, &leave)
      @stopping = stopping
      @not_before ||= now
      reap(now) if @pid
      return (tell_to_end(now) if @pid) if stopping

      start(now, &leave) if @pid.nil? && now >= @not_before
    end

    # @return [Float, nil] when there will be something to do; nil also before it is attended to.
    def deadline
      return @kill_at if @pid

      @not_before unless @stopping
    end

    # Ends it, and waits for that.
    #
    # @yield meanwhile, now and then.
    def finish
      loop do
        attend(monotonic, stopping: true)
        break unless @pid

        yield if block_given?
        sleep(0.02)
      end
    end

    # With whatever code is there then.
    def restart(now) = @pid && tell_to_end(now)

    # At once: what runs is given back to the queue.
    def hurry(now)
      return unless @pid

      signal(:QUIT)
      @kill_at = now + WorkerTable::GRACE
    end

    # In a child of the supervisor: none of its business.
    def close = @lifeline&.close

    private

    def start(now, &leave)
      ActiveRecord::Forks.release
      SequelPools.release
      reader, @lifeline = IO.pipe
      @started = now
      @kill_at = nil
      @pid = Process.fork do
        @lifeline.close
        leave&.call
        @hosted ? host(reader) : run(reader)
      end
      reader.close
    end

    # In the host.
    def host(lifeline)
      signals = Signals.new(:TERM, :INT, :QUIT, :CHLD)
      Process.setproctitle("fairlead: solid queue host [#{@configuration.tag}]")
      jobs = SolidQueueProcess.new(@configuration, @app)
      stopping = false
      loop do
        jobs.attend(monotonic, stopping:) { [signals, lifeline].each(&:close) }
        break if stopping && !jobs.pid

        IO.select([signals.io, *([lifeline] unless stopping)], nil, nil, jobs.deadline&.then { |at| [at - monotonic, 0].max })
        said = signals.take
        jobs.hurry(monotonic) if said.include?(:QUIT)
        stopping ||= said.intersect?(%i[TERM INT QUIT]) || lifeline.wait_readable(0)
      end
      Process.exit!(0)
    end

    # In its own process.
    def run(lifeline)
      %i[TERM INT QUIT HUP CHLD USR1 TTIN TTOU].each { |signal| Signal.trap(signal, "DEFAULT") }
      Process.setproctitle("fairlead: solid queue [#{@configuration.tag}]")
      Log.redirect(@configuration.log) if @configuration.log
      @app || AppLoader.load(@configuration)
      raise ConfigurationError, self.class.missing(@configuration) unless defined?(::SolidQueue)

      # Whoever has started it may be killed: it ends too.
      Thread.new { lifeline.read; Process.kill(:TERM, Process.pid) }
      ::SolidQueue::Supervisor.start(mode: @configuration.solid_queue.to_sym)
      Process.exit!(0) # its threads may be in queries: nothing of theirs is to be finalised
    rescue Error => error
      Log.say error.message
      Process.exit!(1)
    end

    def tell_to_end(now)
      return overdue(now) if @kill_at

      signal(:TERM)
      # A host ends what it has started first.
      @kill_at = now + @configuration.drain_timeout + (@hosted ? 3 * WorkerTable::GRACE : 0)
    end

    def overdue(now)
      return if now < @kill_at

      Log.say "Solid Queue (process #{@pid}) does not end: it is killed."
      signal(:KILL)
      @kill_at = now + WorkerTable::GRACE
    end

    def reap(now)
      _, status = Process.wait2(@pid, Process::WNOHANG)
      return (overdue(now) if @kill_at) unless status

      ended(now, status) unless @stopping || @kill_at
      forget
    rescue Errno::ECHILD
      forget
    end

    def forget
      @lifeline.close
      @pid = @kill_at = nil
    end

    def ended(now, status)
      how = status.signaled? ? "by SIG#{Signal.signame(status.termsig)}" : "with status #{status.exitstatus}"
      return lose_host(how) if @hosted

      delay = @backoff.failed(now - @started)
      @not_before = now + delay
      Log.say "Solid Queue (process #{@pid}) has ended #{how}. It is started again in #{delay.round} s."
    end

    def lose_host(how)
      @not_before = Float::INFINITY
      Log.say "The host of Solid Queue (process #{@pid}) has ended #{how}. Without it Solid Queue cannot be started while this " \
              "process serves: restart the server."
    end

    def signal(name)
      Process.kill(name, @pid)
    rescue Errno::ESRCH
      nil
    end

    def monotonic = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
