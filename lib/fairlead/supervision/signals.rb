# frozen_string_literal: true

require_relative "../parts"

module Fairlead
  # Signals as something to wait for: each trapped one makes {#io} readable, and is then given by {#take} to
  # ordinary code, where locks may be taken and files opened.
  class Signals
    # A handler for what shall have no effect. Not "IGNORE": programs that the app starts would inherit that.
    NOTHING = proc { nil }
    # Those for which Ruby raises an exception.
    ENDING = %i[INT TERM HUP QUIT ALRM USR1 USR2].freeze
    private_constant :ENDING

    @trapping = []

    class << self
      # @return [Array<Signals>] those whose traps are set.
      attr_reader :trapping

      # In a forked child that is none of ours: a signal ends it, unless the app has trapped that. Not by Ruby's exception, which
      # async's loop has put off for the whole thread, and so for the child.
      def leave_to_default
        ours = [NOTHING, *trapping.flat_map { |signals| signals.traps.values }]
        ENDING.each do |name|
          before = Signal.trap(name, "SYSTEM_DEFAULT")
          Signal.trap(name, before) unless before == "DEFAULT" || ours.include?(before)
        end
      end
    end

    # @return [IO] readable when a signal has come.
    attr_reader :io
    # @return [Hash{Symbol => Proc}] what each signal is trapped with.
    attr_reader :traps

    # @param names [Array<Symbol>] the signals to trap, like :TERM.
    def initialize(*names)
      @owner = Process.pid
      @io, @writer = IO.pipe
      @codes = names.each_with_index.to_h { |name, index| [name, index.chr] }
      @traps = names.to_h { |name| [name, proc { note(name) }] }
      @before = @traps.to_h { |name, handler| [name, trap(name, handler)] }
      Signals.trapping << self
    end

    # @return [Array<Symbol>] the signals that have come since, oldest first. Never waits.
    def take
      codes = @io.read_nonblock(4096, exception: false)
      codes.is_a?(String) ? codes.each_char.map { |code| @codes.key(code) } : []
    end

    # Acts as if the signal had come. May be called from any thread, and in a trap.
    #
    # @param name [Symbol]
    def note(name)
      # A child that has been forked a moment ago still has its parent's traps and pipe: they are not its own.
      @writer.write_nonblock(@codes.fetch(name), exception: false) if Process.pid == @owner
    rescue IOError
      nil
    end

    # Puts back what was trapped before.
    def restore
      @before.each { |name, handler| trap(name, handler || "SYSTEM_DEFAULT") }
      close
    end

    # Closes the pipe: in a forked child, which traps signals of its own.
    def close
      Signals.trapping.delete(self)
      [@io, @writer].each(&:close)
    end

    private

    def trap(...) = Signal.trap(...)
  end
end
