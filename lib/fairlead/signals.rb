# frozen_string_literal: true

require_relative "parts"

module Fairlead
  # Signals as something to wait for: each trapped one makes {#io} readable, and is then given by {#take} to
  # ordinary code, where locks may be taken and files opened.
  class Signals
    # @return [IO] readable when a signal has come.
    attr_reader :io

    # @param names [Array<Symbol>] the signals to trap, like :TERM.
    def initialize(*names)
      @owner = Process.pid
      @io, @writer = IO.pipe
      @codes = names.each_with_index.to_h { |name, index| [name, index.chr] }
      @before = names.to_h { |name| [name, trap(name) { note(name) }] }
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
      [@io, @writer].each(&:close)
    end

    private

    def trap(...) = Signal.trap(...)
  end
end
