# frozen_string_literal: true

module Fairlead
  # A process beside the workers: the supervisor starts it, stops it, and starts it again if it ends unasked. A subclass names it,
  # and says in {#call} what runs in it.
  #
  # A process that serves requests itself (`workers 0`) must not be forked meanwhile: its requests are in the middle of database
  # connections, locks and sockets. It starts a side process once, before it serves.
  #
  # Nothing here waits: {#update} does what is due, at {#deadline} and when a child has ended.
  class SideProcess
    FIRST_DELAY = 1.0 # seconds, see RespawnPolicy
    private_constant :FIRST_DELAY

    # @param once [Boolean] whether this process will serve requests.
    def initialize(configuration, once: false)
      @configuration = configuration
      @once = once
      @respawn = RespawnPolicy.new(FIRST_DELAY)
      @open = false
      @opened = Thread::Queue.new
    end

    # @return [Integer, nil] its process, while there is one.
    attr_reader :pid

    # @return [String, nil] why there is none, if it has failed.
    attr_reader :problem

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

    # It ends at once.
    def stop_now(now)
      return unless @pid

      signal(:QUIT)
      @kill_at = now + WorkerTable::GRACE
    end

    # The server serves: a process that waits for that goes on.
    def open
      return if @open

      @open = true
      post(Messages::Ready.new)
    end

    # Has it open its log files again.
    def reopen_logs = post(Messages::Reopen.new)

    # @param message [Data] of {Messages}.
    def post(message) = @pid && @channel.post(message)

    # In another child of the supervisor.
    def close = @channel&.close

    private

    # @return [String] what the log calls it: "Solid Queue".
    def name = raise(NotImplementedError)

    # @return [String] for the process title.
    def title = name.downcase

    # In its process: all that it does. It ends when this returns.
    def call = raise(NotImplementedError)

    # In its process: waits until the server serves.
    def await_opening = (@opened.pop unless @open)

    # In its process, in a thread of its own: the supervisor wants it to end, or has ended itself.
    def quit = Process.kill(:TERM, Process.pid)

    # In its process, before {#call}. A signal that the process handles itself is trapped there.
    def reset_signals = %i[TERM INT QUIT HUP CHLD USR1 TTIN TTOU].each { |signal| Signal.trap(signal, "DEFAULT") }

    def start(now, &close_in_child)
      ActiveRecord::LeaseCleanup.disconnect_before_fork
      SequelPools.release
      @started = now
      @not_before = Float::INFINITY if @once
      @channel, theirs = Channel.pair
      @pid = ForkGuard.fork_own do
        @channel.close
        close_in_child&.call
        run(theirs)
      end
      @problem = nil
    rescue SystemCallError => error
      @channel&.close
      could_not_start(now, "#{name} could not be started: #{error.message}.")
    ensure
      theirs&.close
    end

    # @raise [BootError] in a process that is to serve, and does not yet.
    def could_not_start(now, description)
      raise BootError, description if @once

      delay = @respawn.ended(now, nil)
      @not_before = @respawn.not_before
      report("#{description} It is tried again in #{delay.round} s.")
    end

    def report(problem) = Log.say(@problem = problem)

    # In its process.
    def run(channel)
      reset_signals
      Process.setproctitle("fairlead: #{title} [#{@configuration.tag}]")
      Log.redirect(@configuration.log) if @configuration.log
      Thread.new { obey(channel) }
      call
      Process.exit!(0) # its threads may be in queries, and must not be finalised
    rescue Error => error
      Log.say error.message
      Process.exit!(1)
    end

    def obey(channel)
      loop do
        channel.io.wait_readable
        messages, closed = channel.receive
        messages.each { |message| Log.contain(message) { handle(message) } }
        break if closed || messages.any?(Messages::Stop)
      end
      quit
    end

    def handle(message)
      case message
      when Messages::Reopen then Log.reopen
      when Messages::Ready then @opened.push(true)
      end
    end

    # Not by a signal: the observer ignores those that a service manager sends to all processes.
    def terminate(now)
      return kill_if_expired(now) if @kill_at

      @kill_at = now + @configuration.drain_timeout
      @channel.post(Messages::Stop.new)
    end

    def kill_if_expired(now)
      return if now < @kill_at

      Log.say "#{name} (process #{@pid}) does not end: it is killed."
      signal(:KILL)
      @kill_at = now + WorkerTable::GRACE
    end

    def reap(now)
      how = how_it_ended or return (kill_if_expired(now) if @kill_at)
      ended(now, how) unless @stopping || @kill_at
      @channel.close
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
      how = "#{name} (process #{@pid}) #{how}."
      return report("#{how} While this process serves, it cannot be started again: restart the server.") if @once

      delay = @respawn.ended(now, now - @started)
      @not_before = @respawn.not_before
      report("#{how} It is started again in #{delay.round} s.")
    end

    def signal(name)
      Process.kill(name, @pid)
    rescue Errno::ESRCH
      nil
    end
  end
end
