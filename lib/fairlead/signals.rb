# frozen_string_literal: true

module Fairlead
  # Makes signals something to wait for: a trapped signal makes {#io} readable, and {#take} gives it to ordinary code, which may
  # take locks and open files.
  class Signals
    # A handler without effect. Not "IGNORE": programs that the app starts would inherit that.
    NOTHING = proc { nil }
    # The signals for which Ruby raises an exception.
    ENDING = %i[INT TERM HUP QUIT ALRM USR1 USR2].freeze
    private_constant :ENDING

    @trapping = []

    class << self
      # @return [String] "ended with status 1", "was ended by SIGKILL"
      def end_in_words(status)
        status.signaled? ? "was ended by SIG#{Signal.signame(status.termsig)}" : "ended with status #{status.exitstatus}"
      end

      attr_reader :trapping

      # In a child that the app forks: a signal ends it, unless the app has trapped that.
      #
      # @param handler [String] "SYSTEM_DEFAULT" where Ruby's exception does not arrive: async's loop has put it off for the whole
      #   thread, and so for the child.
      def leave_to_default(handler)
        ours = [NOTHING, *trapping.flat_map { |signals| signals.traps.values }]
        ENDING.each do |name|
          before = Signal.trap(name, handler)
          Signal.trap(name, before) unless before == "DEFAULT" || ours.include?(before)
        end
      end
    end

    attr_reader :io
    # @return [Hash{Symbol => Proc}] what each signal is trapped with.
    attr_reader :traps

    def initialize(*names)
      @owner = Process.pid
      @io, @writer = IO.pipe
      @traps, @before = {}, {}
      add(*names)
      Signals.trapping << self
    end

    def add(*names)
      names.each do |name|
        @traps[name] = proc { Process.pid == @owner ? record(name) : end_child(name) }
        @before[name] = Signal.trap(name, @traps[name])
      end
    end

    # @return [Array<Symbol>] the signals that have come since, oldest first. Never waits.
    def take
      numbers = @io.read_nonblock(4096, exception: false)
      numbers.is_a?(String) ? numbers.each_byte.map { |number| Signal.signame(number).to_sym } : []
    end

    # Acts as if the signal had come, but in a forked child. May be called from any thread and in a trap.
    def record(name)
      return unless Process.pid == @owner

      @writer.write_nonblock(Signal.list.fetch(name.to_s).chr, exception: false)
    rescue IOError
      nil
    end

    # Puts back what was trapped before.
    def restore
      @before.each { |name, handler| Signal.trap(name, handler || "SYSTEM_DEFAULT") }
      close
    end

    # Closes the pipe, in a forked child that sets traps of its own.
    def close
      Signals.trapping.delete(self)
      [@io, @writer].each(&:close)
    end

    private

    # A child that was just forked still has its parent's traps. What is to end it must not be lost.
    def end_child(name)
      return unless %i[TERM INT].include?(name)

      Signal.trap(name, "SYSTEM_DEFAULT")
      Process.kill(name, Process.pid)
    end
  end
end
