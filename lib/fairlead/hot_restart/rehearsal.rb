# frozen_string_literal: true

require_relative "../parts"

module Fairlead
  # Runs the start command beside the running server, up to where it would serve. Once a command has taken the place of its
  # process there is no way back: what is wrong with it (no Ruby, a missing gem, a syntax error) has to show before.
  #
  # Nothing here waits: call {#attend} when one of {#ios} is readable, and at {#deadline}.
  class Rehearsal
    VARIABLE = "FAIRLEAD_REHEARSAL"
    # As much as a failure tells of what the command has written, in bytes.
    DESCRIPTION = 10_000
    # A process may leave its pipe to a child of its own: its end is then seen by looking, after so many seconds.
    LOOK = 0.5
    private_constant :VARIABLE, :DESCRIPTION, :LOOK

    # Ends a process that rehearses. To be called where all is loaded.
    #
    # @yield before it ends.
    # @return [void] in any other process.
    def self.pass(variables = ENV)
      descriptor = variables.delete(VARIABLE) or return
      yield if block_given?
      IO.for_fd(Integer(descriptor)).syswrite("+")
      Process.exit!(0)
    end

    # @param launch [StartCommand]
    # @param within [Float] seconds
    # @raise [SystemCallError] if the command cannot be run.
    def initialize(launch, within:)
      @within = within
      @until = now + within
      @said = +""
      @passed, passed = IO.pipe
      @errors, errors = IO.pipe
      @process = Process.detach(launch.again({ VARIABLE => passed.fileno.to_s }, [passed], launch.rehearsal_flags,
                                             in: File::NULL, out: File::NULL, err: errors))
    rescue SystemCallError
      [@passed, @errors].compact.each(&:close)
      raise
    ensure
      [passed, errors].compact.each(&:close)
    end

    # @return [Array<IO>]
    def ios = [@passed, @errors].reject(&:closed?)

    # @return [Float]
    def deadline = [now + LOOK, @until].min

    # @return [Symbol, String, nil] :passed; or why it has failed; nil: it goes on.
    def attend
      listen
      case @passed.read_nonblock(1, exception: false)
      when String then stop && :passed
      when nil then fail_with(how_it_ended)
      else
        return fail_with(how_it_ended) unless @process.alive?

        fail_with("It was not loaded within #{@within} s (boot_timeout).") if now >= @until
      end
    end

    # @return [true]
    def stop
      Process.kill(:KILL, -@process.pid)
      true
    rescue Errno::ESRCH
      true
    ensure
      close
    end

    # Also in a child of this process.
    def close = [@passed, @errors].each(&:close)

    private

    def listen
      while !@errors.closed? && (chunk = @errors.read_nonblock(65_536, exception: false)) != :wait_readable
        chunk ? (@said << chunk) : @errors.close
        @said = @said.byteslice(-DESCRIPTION..) if @said.bytesize > DESCRIPTION
      end
    end

    # What was written last may come after the end.
    def how_it_ended
      status = @process.join(1)&.value
      listen
      return unless status

      status.signaled? ? "The new process was ended by SIG#{Signal.signame(status.termsig)}." : "The new process ended with status #{status.exitstatus}."
    end

    def fail_with(how)
      stop
      [@said.dup.force_encoding(Encoding::UTF_8).scrub.strip.delete_prefix("fairlead: "), how].compact.reject(&:empty?).join("\n")
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
