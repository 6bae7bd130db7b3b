# frozen_string_literal: true

require_relative "../parts"

module Fairlead
  # Runs the start command beside a server that serves in the foreground, up to the point where it would serve. There is no way
  # back once the command has replaced its process, so what is wrong with it (no Ruby, a missing gem, a syntax error) has to
  # show before.
  #
  # Nothing here waits: call {#result} when one of {#ios} is readable, and at {#deadline}.
  class Rehearsal
    VARIABLE = "FAIRLEAD_REHEARSAL"
    # The exit status of a command that would serve.
    PASSED = 77
    # So many bytes of what the command has written go into a failure.
    DESCRIPTION_LIMIT = 10_000
    # Seconds between two looks at the process: a child of its own may keep its pipe open.
    INTERVAL = 0.5
    private_constant :VARIABLE, :PASSED, :DESCRIPTION_LIMIT, :INTERVAL

    # Ends a process that rehearses. To be called where all is loaded.
    #
    # @yield before it ends.
    # @return [void] in any other process.
    def self.pass
      return unless ENV.delete(VARIABLE)

      yield
      Process.exit!(PASSED)
    end

    # @raise [SystemCallError] if the command cannot be run.
    def initialize(start_command, timeout:)
      @timeout = timeout
      @end_at = Clock.now + timeout
      @written = +""
      @errors, errors = IO.pipe
      @process = Process.detach(start_command.spawn_copy({ VARIABLE => "1" }, in: File::NULL, out: File::NULL, err: errors))
    rescue SystemCallError
      @errors&.close
      raise
    ensure
      errors&.close
    end

    def ios = [@errors].reject(&:closed?)

    def deadline = [Clock.now + INTERVAL, @end_at].min

    # @return [Symbol, String, nil] :passed; or why it has failed; nil: it goes on.
    def result
      read_errors
      if !@process.alive? then conclude(@process.value)
      elsif Clock.now >= @end_at then fail_with("It was not loaded within #{@timeout} s (boot_timeout).")
      end
    end

    # Ends the process, and what it has started.
    def stop
      Process.kill(:KILL, -@process.pid)
    rescue Errno::ESRCH
      nil
    ensure
      @errors.close
    end

    private

    # The end of the file comes just before that of the process, mostly.
    def read_errors
      while !@errors.closed? && (chunk = @errors.read_nonblock(65_536, exception: false)) != :wait_readable
        chunk ? (@written << chunk) : @errors.close
        @written = @written.byteslice(-DESCRIPTION_LIMIT..) if @written.bytesize > DESCRIPTION_LIMIT
      end
      @process.join(0.05) if @errors.closed?
    end

    def conclude(status)
      read_errors # its last words
      return stop.then { :passed } if status.exitstatus == PASSED

      how = status.signaled? ? "was ended by SIG#{Signal.signame(status.termsig)}" : "ended with status #{status.exitstatus}"
      fail_with("The new process #{how}.")
    end

    def fail_with(how)
      stop
      [@written.dup.force_encoding(Encoding::UTF_8).scrub.strip.delete_prefix("fairlead: "), how].reject(&:empty?).join("\n")
    end
  end
end
