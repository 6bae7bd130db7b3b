# frozen_string_literal: true

require "io/nonblock"
require_relative "../parts"

module Fairlead
  # Reads and writes of a fiber where the file is not non-blocking, as standard output, what a shell or another process has opened, and
  # files on disk. Other processes share it, children among them. io-event would make it non-blocking for as long as it waits, and they
  # would get Errno::EAGAIN. Ruby makes the pipes and sockets that it opens itself non-blocking at once: these are io-event's.
  #
  # A fiber waits until the file is ready, and blocks for no longer than its bytes take. What might block is written by a thread.
  module SharedFiles
    # A pipe that is ready takes so many bytes at once (PIPE_BUF).
    AT_ONCE = Platform::LINUX ? 4096 : 512
    AGAIN = -::Errno::EAGAIN::Errno
    # Bytes: more is not copied to be one write, as a large body after its head.
    LONGEST_LINE = 1_048_576
    # Linux's numbers.
    FIONREAD = 0x541b
    F_GETPIPE_SZ = 1032
    private_constant :AT_ONCE, :AGAIN, :LONGEST_LINE, :FIONREAD, :F_GETPIPE_SZ

    class << self
      # @param buffer [IO::Buffer]
      # @param least [Integer] so many bytes at least.
      # @return [Integer] what a scheduler's io_read returns; Ruby waits itself if the file is not ready.
      def read(io, buffer, least, *offset)
        return in_thread { buffer.read(io, least, *offset) } if least.positive? && !io.stat.file?

        ::Fiber.blocking { io.wait_readable(0) ? buffer.read(io, least, *offset) : AGAIN }
      end

      # All the bytes at once: other writers' do not come between them.
      #
      # @param buffer [IO::Buffer]
      # @return [Integer] (see read)
      def write(io, buffer, *range)
        return in_thread { buffer.write(io, *range) } unless buffer.size <= AT_ONCE || room?(io, buffer.size)

        ::Fiber.blocking { io.wait_writable(0) ? buffer.write(io, *range) : AGAIN }
      end

      private

      # Files on disk do not block, and a pipe takes what it can hold once its reader has read all.
      def room?(io, size)
        stat = io.stat
        return stat.file? unless Platform::LINUX && stat.pipe?

        unread = [0].pack("i")
        io.ioctl(FIONREAD, unread)
        unread.unpack1("i").zero? && size <= io.fcntl(F_GETPIPE_SZ)
      rescue ::SystemCallError
        false
      end

      # The buffer is Ruby's, and gone with the call: so the thread ends before.
      def in_thread(&block)
        thread = BareThread.start(&block)
        thread.value
      rescue ::ThreadError # the system allows no more threads
        raise if thread

        ::Fiber.blocking(&block)
      ensure
        Uninterruptible.run { thread.kill.join } if thread&.alive?
      end
    end

    # `puts` gives a line and its end. A thread writes both at once, but a scheduler is given one after the other.
    def write(*strings)
      return super unless strings.size > 1 && ::Fiber.current_scheduler && strings.all?(::String)
      return super if strings.sum(&:bytesize) > LONGEST_LINE

      begin
        strings = [strings.join]
      rescue ::Encoding::CompatibilityError
        nil
      end
      super
    end

    ::IO.prepend(self)
  end
end
