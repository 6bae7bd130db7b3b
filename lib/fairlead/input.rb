# frozen_string_literal: true

require "stringio"

module Fairlead
  # `rack.input` of a body that is larger than what is read ahead: read as it comes, and not twice. A body that came
  # whole is a StringIO instead.
  class Input
    CHUNK = 65_536
    private_constant :CHUNK

    # The input of a request without a body: shared by all, since reading and closing leave it as it is.
    class None
      def read(length = nil, buffer = nil)
        buffer&.clear
        length.nil? || length.zero? ? buffer || "".b : nil
      end

      def readpartial(*) = raise(EOFError, "end of the request body")

      def gets(*) = nil

      def each = self

      def rewind = 0

      def size = 0

      def eof? = true

      def close = nil

      def closed? = false

      def external_encoding = Encoding::BINARY

      def binmode = self

      def set_encoding(*) = self
    end

    NONE = None.new.freeze

    # @return [Input, Rack::RewindableInput] Rack 2 asks for one that can be read again: it is kept in a file there.
    def self.new(request)
      @rewindable = Rack.release < "3" if @rewindable.nil?
      @rewindable ? Rack::RewindableInput.new(super) : super
    end

    # @param request [Request]
    def initialize(request)
      @request = request
      @scheduler = Fiber.scheduler
      @buffer = String.new(encoding: Encoding::BINARY)
      @ended = false
    end

    # @param length [Integer, nil] bytes; nil: all
    # @param buffer [String, nil] filled instead of a new string
    # @return [String, nil] nil at the end, where a length was given
    # @raise [ClientGone] when the rest will never come
    def read(length = nil, buffer = nil)
      fill until @ended || (length && @buffer.bytesize >= length)
      bytes = length.nil? ? @buffer.slice!(0, @buffer.bytesize) : @buffer.slice!(0, length)
      if buffer
        buffer.replace(bytes)
        bytes = buffer
      end
      bytes.empty? && length&.positive? ? nil : bytes
    end

    # What there is, up to `length` bytes, waiting only where there is nothing yet.
    #
    # @raise [EOFError]
    def readpartial(length, buffer = nil)
      fill while @buffer.empty? && !@ended
      raise EOFError, "end of the request body" if @buffer.empty?

      bytes = @buffer.slice!(0, length)
      buffer ? buffer.replace(bytes) : bytes
    end

    # @return [String, nil] the next line
    def gets(separator = $/, *)
      return read if separator.nil?

      looked = 0 # up to here in vain
      until (ends = @buffer.index(separator, looked)) || @ended
        looked = [@buffer.bytesize - separator.bytesize + 1, 0].max
        fill
      end
      return nil if @buffer.empty?

      @buffer.slice!(0, ends ? ends + separator.bytesize : @buffer.bytesize)
    end

    # Yields line by line.
    def each
      return enum_for(:each) unless block_given?

      while (line = gets)
        yield line
      end
      self
    end

    def eof?
      fill while @buffer.empty? && !@ended
      @buffer.empty?
    end

    # What has not been read is dropped with the request.
    def close = nil

    def closed? = false

    def binmode = self

    def set_encoding(*) = self

    def external_encoding = Encoding::BINARY

    private

    def reach_the_end
      @ended = true
      @request.env["fairlead.request_trailers"]&.update(@request.trailers)
    end

    def fill
      until (bytes = @request.read(CHUNK)) != false
        @scheduler.await(@request)
      end
      bytes ? @buffer << bytes : reach_the_end
    end
  end
end
