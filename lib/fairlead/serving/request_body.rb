# frozen_string_literal: true

require "stringio"

module Fairlead
  # Reads a body from the core, once, while the client sends it. {BodyFile} receives a large body through it before the app is
  # called; with `stream_request_bodies` the app gets it as `rack.input`. A body that came whole is a StringIO instead.
  #
  # It has all of IO's methods that read forward. Every byte is binary.
  class RequestBody
    include Enumerable

    CHUNK = 65_536
    private_constant :CHUNK

    # @param request [Request]
    def initialize(request)
      @request = request
      @scheduler = Fiber.scheduler
      @ahead = String.new(encoding: Encoding::BINARY)
      @ended = false
      @received = @lineno = 0
    end

    # @return [Integer] how many lines have been read.
    attr_accessor :lineno

    # @return [Integer] bytes that have been read.
    def pos = @received - @ahead.bytesize
    alias tell pos

    # @param length [Integer, nil] bytes; nil: all
    # @param buffer [String, nil] filled instead of a new string
    # @return [String, nil] nil at the end, where a length was given
    # @raise [ClientGone] when the rest will never come
    def read(length = nil, buffer = nil)
      raise ArgumentError, "negative length #{length} given" if length&.negative?

      bytes = taken(length, buffer)
      fill(bytes, length ? length - bytes.bytesize : CHUNK) until @ended || (length && bytes.bytesize >= length)
      bytes.empty? && length&.positive? ? nil : bytes
    rescue Exception # such as a timeout of the app, which may read on after it
      @ahead.prepend(bytes) if bytes
      raise
    end

    # Reads up to `length` bytes, and waits only if there are none yet.
    #
    # @raise [EOFError]
    def readpartial(length, buffer = nil)
      fill(@ahead) while @ahead.empty? && !@ended
      at_end! if @ahead.empty?

      # A copy: a slice would keep the whole buffer.
      (buffer ? buffer.replace("".b) : "".b) << @ahead.slice!(0, length)
    end
    alias sysread readpartial

    def read_nonblock(length, buffer = nil, exception: true)
      readpartial(length, buffer)
    rescue EOFError
      raise if exception
    end

    # (see IO#gets)
    # @return [String, nil] the next line
    def gets(*arguments, chomp: false)
      separator, limit = separator_and_limit(*arguments)
      return "".b if limit&.zero?

      line = separator == "" ? paragraph(limit) : until_separator(separator, limit)
      return unless line

      @lineno += 1
      chomp && separator ? line.chomp(separator) : line
    end

    def readline(...) = gets(...) || at_end!

    # Yields line by line.
    def each_line(*arguments, **options)
      return enum_for(:each_line, *arguments, **options) unless block_given?
      raise ArgumentError, "invalid limit: 0 for each_line" if separator_and_limit(*arguments).last&.zero?

      while (line = gets(*arguments, **options))
        yield line
      end
      self
    end
    alias each each_line

    def readlines(...) = each_line(...).to_a

    def getc = read(1)

    def readchar = getc || at_end!

    def getbyte = getc&.ord

    def readbyte = readchar.ord

    def each_byte
      return enum_for(:each_byte) unless block_given?

      while (byte = getbyte)
        yield byte
      end
      self
    end

    def each_char
      return enum_for(:each_char) unless block_given?

      while (character = getc)
        yield character
      end
      self
    end

    def ungetbyte(byte)
      @ahead.prepend(byte.is_a?(Integer) ? (byte & 0xff).chr : byte.to_s.b) if byte
      nil
    end
    alias ungetc ungetbyte

    def eof?
      fill(@ahead) while @ahead.empty? && !@ended
      @ahead.empty?
    end
    alias eof eof?

    # The rest is dropped with the request.
    def close = nil

    def closed? = false

    def binmode = self

    def binmode? = true

    def set_encoding(*, **) = self

    def external_encoding = Encoding::BINARY

    def internal_encoding = nil

    def isatty = false
    alias tty? isatty

    private

    def at_end! = raise(EOFError, "end of the request body")

    def separator_and_limit(first = (none = true; $/), limit = nil)
      return [$/, Integer(first)] if !none && limit.nil? && first && !first.respond_to?(:to_str)

      limit = nil if limit&.negative?
      [first&.to_str&.b, limit]
    end

    def until_separator(separator, limit)
      return (limit ? read(limit) : read.then { |rest| rest unless rest.empty? }) if separator.nil?

      size = read_ahead(separator, limit)
      @ahead.slice!(0, size) unless size.zero?
    end

    # Reads ahead up to the end of the next line.
    #
    # @return [Integer] the line's bytes; 0 at the end.
    def read_ahead(separator, limit)
      looked = 0 # up to here it has no separator
      until (found = @ahead.byteindex(separator, looked)) || @ended || (limit && @ahead.bytesize >= limit)
        looked = [@ahead.bytesize - separator.bytesize + 1, 0].max
        fill(@ahead)
      end
      size = found ? found + separator.bytesize : @ahead.bytesize
      limit && limit < size ? limit : size
    end

    # Lines up to an empty one; further empty lines are skipped.
    def paragraph(limit)
      skip_newlines
      line = until_separator("\n\n", limit)
      skip_newlines
      line
    end

    def skip_newlines
      until eof?
        return unless @ahead.start_with?("\n")

        @ahead.slice!(0, 1)
      end
    end

    def reach_the_end
      @ended = true
      @request.env["fairlead.request_trailers"]&.update(@request.trailers)
    end

    # @param buffer [String, nil] filled instead of a new string
    # @return [String] what has been read ahead, up to `length` bytes.
    def taken(length, buffer)
      bytes = @ahead.slice!(0, length || @ahead.bytesize)
      buffer ? buffer.replace(bytes) : bytes
    end

    def fill(bytes, most = CHUNK)
      most = CHUNK if most > CHUNK
      before = bytes.bytesize
      until (more = @request.read(bytes, most)) != false
        RequestTimes.during(RequestTimes::SOCKET) { @scheduler.await(@request) { @request.awaits_body? } }
      end
      return reach_the_end unless more

      @received += bytes.bytesize - before
      @scheduler.give_way if @request.slice_over?
    end

    # The input of all requests without a body, which share it: no method changes it.
    class Empty < RequestBody
      def initialize
        @ahead = "".b
        @ended = true
        @received = @lineno = 0
        freeze
      end

      def rewind = 0

      def seek(*) = 0

      def pos=(_position); end

      def lineno=(_number); end

      def size = 0
      alias length size

      def string = "".b

      def ungetbyte(*) = nil
      alias ungetc ungetbyte
    end

    NONE = Empty.new
  end
end
