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
    # So many bytes of what the command has written go into a failure.
    DESCRIPTION_LIMIT = 10_000
    # Seconds between two looks at the process: it may leave its pipe to a child of its own, so the pipe does not show its end.
    INTERVAL = 0.5
    private_constant :VARIABLE, :DESCRIPTION_LIMIT, :INTERVAL

    # Ends a process that rehearses. To be called where all is loaded.
    #
    # @yield before it ends.
    # @return [void] in any other process.
    def self.pass
      descriptor = ENV.delete(VARIABLE) or return
      yield
      IO.for_fd(Integer(descriptor)).syswrite("+")
      Process.exit!(0)
    end

    # @param start_command [StartCommand]
    # @param timeout [Float] seconds
    # @raise [SystemCallError] if the command cannot be run.
    def initialize(start_command, timeout:)
      @timeout = timeout
      @end_at = Clock.now + timeout
      @written = +""
      @passed, passed = IO.pipe
      @errors, errors = IO.pipe
      pid = start_command.spawn_copy({ VARIABLE => passed.fileno.to_s }, [passed], in: File::NULL, out: File::NULL, err: errors)
      @process = Process.detach(pid)
    rescue SystemCallError
      [@passed, @errors].compact.each(&:close)
      raise
    ensure
      [passed, errors].compact.each(&:close)
    end

    # @return [Array<IO>]
    def ios = [@passed, @errors].reject(&:closed?)

    # @return [Float]
    def deadline = [Clock.now + INTERVAL, @end_at].min

    # @return [Symbol, String, nil] :passed; or why it has failed; nil: it goes on.
    def result
      read_errors
      case @passed.read_nonblock(1, exception: false)
      when String then stop && :passed
      when nil then fail_with(how_it_ended)
      else
        return fail_with(how_it_ended) unless @process.alive?

        fail_with("It was not loaded within #{@timeout} s (boot_timeout).") if now >= @end_at
      end
    end

    # @return [true]
    def stop
      Process.kill(:KILL, -@process.pid)
      true
    rescue Errno::ESRCH
      true
    ensure
      ios.each(&:close)
    end

    private

    def read_errors
      while !@errors.closed? && (chunk = @errors.read_nonblock(65_536, exception: false)) != :wait_readable
        chunk ? (@written << chunk) : @errors.close
        @written = @written.byteslice(-DESCRIPTION_LIMIT..) if @written.bytesize > DESCRIPTION_LIMIT
      end
    end

    # Its last words may come after its end.
    def how_it_ended
      status = @process.join(1)&.value
      read_errors
      return unless status

      return "The new process was ended by SIG#{Signal.signame(status.termsig)}." if status.signaled?

      "The new process ended with status #{status.exitstatus}."
    end

    def fail_with(how)
      stop
      [@written.dup.force_encoding(Encoding::UTF_8).scrub.strip.delete_prefix("fairlead: "), how].compact.reject(&:empty?).join("\n")
    end
  end
end
