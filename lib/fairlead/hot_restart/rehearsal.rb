# frozen_string_literal: true

module Fairlead
  # Runs the start command beside a server that serves in the foreground, up to the point where it would serve: there is no way
  # back once the command has replaced its process. The copy has a {ParentLink}, and reports over it like the supervisor of a
  # hot restart.
  #
  # Nothing here waits: call {#result} when {#io} is readable, and at {#deadline}.
  class Rehearsal
    attr_reader :deadline

    # @raise [SystemCallError] if the command cannot be run.
    def initialize(start_command, timeout:)
      @timeout = timeout
      @deadline = Clock.now + timeout
      @channel, theirs = Channel.pair
      link = { pid: Process.pid, generation: 0, control: theirs.io.fileno, listeners: [], rehearsal: true }
      @process = Process.detach(start_command.spawn_copy({ ParentLink::VARIABLE => Messages.json(link) }, [theirs.io],
                                                         in: File::NULL, out: File::NULL))
    rescue SystemCallError
      @channel&.close
      raise
    ensure
      theirs&.close
    end

    def io = @channel.io

    # @return [Messages::Ready, Messages::Failed, nil] nil: it goes on.
    def result
      messages, closed = @channel.receive
      found = messages.last
      found ||= Messages::Failed.new("The new process #{end_in_words}; its messages are above.") if closed
      found ||= Messages::Failed.new("It was not loaded within #{@timeout} s (boot_timeout).") if Clock.now >= @deadline
      stop if found
      found
    end

    # Ends the copy, and what it has started.
    def stop
      Process.kill(:KILL, -@process.pid)
    rescue Errno::ESRCH
      nil
    ensure
      @channel.close
    end

    # In a child of the app.
    def close = @channel.close

    private

    # The channel is closed just before the process ends.
    def end_in_words
      stop unless @process.join(1)
      Signals.end_in_words(@process.value)
    end
  end
end
