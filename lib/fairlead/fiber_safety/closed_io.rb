# frozen_string_literal: true

require_relative "attributes"
require_relative "uninterruptible"

module Fairlead
  # A fiber that waits for an IO gets IOError in that very wait when another fiber or thread closes the IO, as a thread does.
  #
  # Ruby interrupts threads only: a fiber that waits in a selector would never wake, and the number of its descriptor may be
  # another file's by then. Ruby 4 can interrupt fibers as well (see Scheduler#disable_fiber_interrupt), but a close then hangs
  # if one of them waits for the IO again at once, and does not tell a fiber that writes to a child process.
  module ClosedIO
    # Seconds that a close waits at most until the fibers of a reactor have let go of the IO, and that a fiber waits at most for
    # the end of a close: the fiber may hold the lock that the close needs to flush.
    PATIENCE = 1
    private_constant :PATIENCE

    def self.error = ::IOError.new("stream closed in another thread")

    # A close in progress. Fibers that begin to wait for the IO meanwhile find out at its end what has become of it.
    class Close
      # @return [Exception, nil] what was raised in the closing fiber while it waited for others.
      attr_reader :exception

      def initialize = @ended = ::Thread::Queue.new

      # @raise [IOError] if it takes too long
      def await_end
        @ended.pop(timeout: PATIENCE)
        raise ClosedIO.error unless @ended.closed?
      end

      def finish = @ended.close

      # Those that wait for the IO are told that it is closed. Ruby keeps track of the threads that use it on the closing fiber's stack:
      # that fiber must not leave before they have.
      def without_interruption(&)
        Uninterruptible.run(&)
      rescue Exception => error
        @exception = error
      end
    end

    # On a reactor's ready list: raises in the fibers that wait for an IO, in one each time.
    class Interruption
      def initialize(selector, io)
        @selector = selector
        @io = io
        @done = ::Thread::Queue.new
      end

      def alive? = true

      def transfer(*)
        @fibers ||= waiting
        fiber = @fibers.shift or return @done.close
        @selector.push(self)
        Uninterruptible.raise_in_wait(fiber, ClosedIO.error) if waiting.include?(fiber)
      end

      def await_end = @done.pop(timeout: PATIENCE)

      private

      def waiting = [*@selector.waiting_for(@io)]
    end

    # The two directions of a child process are two IOs, of which Ruby shows one.
    def close = ClosedIO.closing(self) { ClosedIO.closing(Platform.write_end(self)) { super } }

    def close_read = ClosedIO.closing(self) { super }

    def close_write = ClosedIO.closing(Platform.write_end(self)) { super }

    # io-event takes an IO that has waited for registered, whatever file that is by now.
    def reopen(...)
      ClosedIO.closing(self) do
        super.tap { self.fairlead_stand_in = ::IO.for_fd(fileno, autoclose: false) if ClosedIO.selectors.any? }
      end
    end

    class << self
      # @return [Array<Selector>] those of this process: in the child of a fork, the parent's fibers wait for nothing.
      def selectors
        return @selectors if @process == ::Process.pid

        @process = ::Process.pid
        @closes = {}.compare_by_identity
        @selectors = []
      end

      # Called before a fiber waits for an IO.
      #
      # @api private
      def await_close(io)
        close = @closes[io]
        close.await_end if close && !::Fiber.current.fairlead_close
      end

      # @api private
      # @param io [IO, nil]
      def closing(io)
        return yield if io.nil? || selectors.empty? || @closes.key?(io)

        fiber = ::Fiber.current
        outer = fiber.fairlead_close
        close = @closes[io] = fiber.fairlead_close = Close.new
        waited = selectors.select { |selector| selector.waiting_for(io) }
        close.without_interruption { waited.each { |selector| interrupt(selector, io) } } if waited.any?
        yield
      ensure
        if close
          fiber.fairlead_close = outer
          @closes.delete(io)
          close.finish
          raise close.exception if close.exception # also where the close itself has failed
        end
      end

      private

      # The fibers let go before the descriptor is closed, unless the caller keeps their reactor from going on.
      def interrupt(selector, io)
        interruption = Interruption.new(selector, io)
        selector.push(interruption)
        selector.wakeup
        scheduler = ::Fiber.scheduler
        own = scheduler.respond_to?(:selector) && scheduler.selector.equal?(selector)
        interruption.await_end unless own && ::Fiber.current.blocking?
      end
    end

    selectors
    ::IO.prepend(self)
  end
end
