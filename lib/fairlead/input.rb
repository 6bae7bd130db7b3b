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
      @ahead = String.new(encoding: Encoding::BINARY)
      @ended = false
    end

    # @param length [Integer, nil] bytes; nil: all
    # @param buffer [String, nil] filled instead of a new string
    # @return [String, nil] nil at the end, where a length was given
    # @raise [ClientGone] when the rest will never come
    def read(length = nil, buffer = nil)
      bytes = taken(length, buffer)
      fill(bytes, length ? length - bytes.bytesize : CHUNK) until @ended || (length && bytes.bytesize >= length)
      bytes.empty? && length&.positive? ? nil : bytes
    rescue Exception # a timeout of the app's among them, after which it may read on
      @ahead.prepend(bytes) if bytes
      raise
    end

    # What there is, up to `length` bytes, waiting only where there is nothing yet.
    #
    # @raise [EOFError]
    def readpartial(length, buffer = nil)
      fill(@ahead) while @ahead.empty? && !@ended
      raise EOFError, "end of the request body" if @ahead.empty?

      # A copy: a slice would keep all the room that was made.
      (buffer ? buffer.replace("".b) : "".b) << @ahead.slice!(0, length)
    end

    # @return [String, nil] the next line
    def gets(separator = $/, *)
      return read if separator.nil?

      looked = 0 # up to here in vain
      until (ends = @ahead.index(separator, looked)) || @ended
        looked = [@ahead.bytesize - separator.bytesize + 1, 0].max
        fill(@ahead)
      end
      return nil if @ahead.empty?

      @ahead.slice!(0, ends ? ends + separator.bytesize : @ahead.bytesize)
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
      fill(@ahead) while @ahead.empty? && !@ended
      @ahead.empty?
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

    # @param buffer [String, nil] to be that instead of a new one
    # @return [String] what has been read ahead, up to `length` bytes.
    def taken(length, buffer)
      bytes = @ahead.slice!(0, length || @ahead.bytesize)
      buffer ? buffer.replace(bytes) : bytes
    end

    def fill(bytes, most = CHUNK)
      most = CHUNK if most > CHUNK
      until (more = @request.read(bytes, most)) != false
        @scheduler.await(@request)
      end
      reach_the_end unless more
    end
  end
end
