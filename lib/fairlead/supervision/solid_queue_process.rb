# frozen_string_literal: true

module Fairlead
  # Solid Queue beside the workers: a process that the supervisor starts, stops, and starts again if it ends unasked (the option
  # `solid_queue`).
  #
  # A process that serves requests itself (`workers 0`) must not be forked meanwhile: its requests are in the middle of database
  # connections, locks and sockets. It starts Solid Queue once, before it serves.
  #
  # Nothing here waits: {#update} does what is due, at {#deadline} and when a child has ended.
  class SolidQueueProcess
    FIRST_DELAY = 1.0 # seconds, see RespawnPolicy
    private_constant :FIRST_DELAY

    # @param once [Boolean] whether this process will serve requests.
    # @return [SolidQueueProcess, nil] nil if the option is off.
    # @raise [ConfigurationError] if the app, loaded already, has no Solid Queue.
    def self.for(configuration, app, once: false)
      return if configuration.solid_queue == "off"
      raise ConfigurationError, missing(configuration) if app && !defined?(::SolidQueue)

      new(configuration, app, once:)
    end

    def self.missing(configuration)
      "#{configuration.source(:solid_queue)}: `solid_queue` is #{configuration.solid_queue.inspect}, and the app has no " \
        "Solid Queue. Add the gem solid_queue to the Gemfile, or remove the line."
    end

    def initialize(configuration, app, once: false)
      @configuration = configuration
      @app = app
      @once = once
      @respawn = RespawnPolicy.new(FIRST_DELAY)
    end

    # @return [Integer, nil] its process, while there is one.
    attr_reader :pid

    # Starts it, reaps it, and ends it if the server stops.
    #
    # @yield in the new process: closes what belongs to its parent
    def update(now, stopping: false, &close_in_child)
      @stopping = stopping
      @not_before ||= now
      reap(now) if @pid
      return (terminate(now) if @pid) if stopping

      start(now, &close_in_child) if @pid.nil? && now >= @not_before
    end

    # @return [Float, nil] when there will be something to do; nil also before the first {#update}.
    def deadline
      return @kill_at if @pid

      @not_before unless @stopping
    end

    # Ends it, and waits for its end.
    #
    # @yield now and then meanwhile.
    def finish
      loop do
        update(Clock.now, stopping: true)
        break unless @pid

        yield if block_given?
        sleep(0.02)
      end
    end

    # Ends it, so that it is started again.
    def restart(now) = @pid && terminate(now)

    # Solid Queue gives the jobs that run back to the queue.
    def stop_now(now)
      return unless @pid

      signal(:QUIT)
      @kill_at = now + WorkerTable::GRACE
    end

    # In another child of the supervisor.
    def close = @lifeline&.close

    private

    def start(now, &close_in_child)
      ActiveRecord::LeaseCleanup.disconnect_before_fork
      SequelPools.release
      @started = now
      @not_before = Float::INFINITY if @once
      reader, @lifeline = IO.pipe
      @pid = Process.fork do
        @lifeline.close
        close_in_child&.call
        run(reader)
      end
    rescue SystemCallError => error
      @lifeline&.close
      could_not_start(now, "Solid Queue could not be started: #{error.message}.")
    ensure
      reader&.close
    end

    # @raise [BootError] in a process that is to serve, and does not yet.
    def could_not_start(now, description)
      raise BootError, description if @once

      delay = @respawn.ended(now, nil)
      @not_before = @respawn.not_before
      Log.say "#{description} It is tried again in #{delay.round} s."
    end

    # In Solid Queue's process.
    def run(lifeline)
      %i[TERM INT QUIT HUP CHLD USR1 TTIN TTOU].each { |signal| Signal.trap(signal, "DEFAULT") }
      Process.setproctitle("fairlead: solid queue [#{@configuration.tag}]")
      Log.redirect(@configuration.log) if @configuration.log
      Thread.new do
        lifeline.wait_readable
        Process.kill(:TERM, Process.pid)
      end
      @app || AppLoader.load(@configuration)
      raise ConfigurationError, self.class.missing(@configuration) unless defined?(::SolidQueue)

      ::SolidQueue::Supervisor.start(mode: @configuration.solid_queue.to_sym)
      Process.exit!(0) # its threads may be in queries, and must not be finalised
    rescue Error => error
      Log.say error.message
      Process.exit!(1)
    end

    # Not by a signal: a process that was just forked still has its parent's traps, and would lose it.
    def terminate(now)
      return kill_if_expired(now) if @kill_at

      @kill_at = now + @configuration.drain_timeout
      @lifeline.write_nonblock("stop", exception: false)
    rescue Errno::EPIPE
      nil # it has ended, and is not reaped yet
    end

    def kill_if_expired(now)
      return if now < @kill_at

      Log.say "Solid Queue (process #{@pid}) does not end: it is killed."
      signal(:KILL)
      @kill_at = now + WorkerTable::GRACE
    end

    def reap(now)
      how = how_it_ended or return (kill_if_expired(now) if @kill_at)
      ended(now, how) unless @stopping || @kill_at
      @lifeline.close
      @pid = @kill_at = nil
    end

    # @return [String, nil] nil: it runs.
    def how_it_ended
      _, status = Process.wait2(@pid, Process::WNOHANG)
      Signals.end_in_words(status) if status
    rescue Errno::ECHILD
      "ended, and something else in this process took its status"
    end

    def ended(now, how)
      how = "Solid Queue (process #{@pid}) #{how}."
      return Log.say("#{how} While this process serves, it cannot be started again: restart the server.") if @once

      delay = @respawn.ended(now, now - @started)
      @not_before = @respawn.not_before
      Log.say "#{how} It is started again in #{delay.round} s."
    end

    def signal(name)
      Process.kill(name, @pid)
    rescue Errno::ESRCH
      nil
    end
  end
end
