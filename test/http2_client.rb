# frozen_string_literal: true

require "openssl"
require "socket"

module Fairlead
  # A client of HTTP/2 that sends frames as they are given, however wrong. Headers are sent without compression.
  #
  #   client = HTTP2Client.new(TCPSocket.new("127.0.0.1", 9292))
  #   client.headers(1, HTTP2Client.get("/"))
  #   client.status(1)  # => 200
  class HTTP2Client
    PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = *0..9
    END_STREAM = ACK = 1
    END_HEADERS = 4
    ENHANCE_YOUR_CALM = 11
    STATIC_STATUSES = { 8 => 200, 9 => 204, 10 => 206, 11 => 304, 12 => 400, 13 => 404, 14 => 500 }.freeze
    # HPACK's code of the digits (RFC 7541, appendix B).
    DIGITS = { "00000" => "0", "00001" => "1", "00010" => "2", "011001" => "3", "011010" => "4", "011011" => "5", "011100" => "6",
               "011101" => "7", "011110" => "8", "011111" => "9" }.freeze

    Frame = Struct.new(:type, :flags, :id, :payload)

    def self.get(path, **more) = [[":method", "GET"], [":scheme", "http"], [":authority", "a"], [":path", path], *more.to_a]
    def self.post(path, *more) = [[":method", "POST"], [":scheme", "http"], [":authority", "a"], [":path", path], *more]

    # @return [String] a header block of literals without indexing.
    def self.pack(fields) = fields.map { |name, value| "\0".b << string(name) << string(value) }.join

    def self.string(text) = integer(text.bytesize, 7) << text.b

    def self.integer(number, bits, flags = 0)
      most = (1 << bits) - 1
      return [flags | number].pack("C") if number < most

      bytes = [flags | most]
      number -= most
      while number >= 128
        bytes << ((number & 127) | 128)
        number >>= 7
      end
      [*bytes, number].pack("C*")
    end

    # Has clients ask until the block returns, four requests at a time each, and go on over a new connection once the server has said
    # that theirs will end.
    #
    # @param path [String]
    # @param connect [Proc] opens a connection.
    # @return [Hash{Integer, Symbol, nil => Integer}] how often each status came; nil: the connection has ended before the response.
    def self.ask_meanwhile(path, connect, clients: 3)
      stop = false
      asking = Array.new(clients) { Thread.new { ask_until(path, connect) { stop } } }
      yield
      stop = true
      asking.map(&:value).reduce { |sum, more| sum.merge(more) { |_, one, other| one + other } }
    ensure
      stop = true
      asking&.each(&:join)
    end

    def self.ask_until(path, connect)
      statuses = Hash.new(0)
      until yield
        client = new(connect.call).window(0, 1 << 30) # for all responses together
        id = -1
        until yield || client.goaway
          ids = Array.new(4) { id += 2 }
          ids.each { |number| client.headers(number, get(path)) }
          came = ids.map { |number| client.body(number) && client.status(number) }
          # Who is silent for long after the server has said so finds the connection closed, and asks again.
          came.each { |status| statuses[status] += 1 } unless came.none? && client.goaway
        end
        client.close
      end
      statuses
    end
    private_class_method :ask_until

    # @param settings [Hash{Integer => Integer}]
    def initialize(socket, settings = {}, timeout: 30)
      @socket = socket
      @timeout = timeout
      @buffer = String.new(encoding: Encoding::BINARY)
      @statuses = {}
      @bodies = Hash.new { |bodies, id| bodies[id] = String.new(encoding: Encoding::BINARY) }
      @over = {}
      write(PREFACE)
      frame(SETTINGS, 0, 0, settings.map { |pair| pair.pack("nN") }.join)
    end

    # @return [Integer, nil] the error code of GOAWAY.
    attr_reader :goaway
    # @return [Boolean, nil] whether the server has ended the connection.
    attr_reader :ended

    # Nothing happens if the server has ended the connection.
    def write(bytes)
      @socket.write(bytes)
      self
    rescue Errno::EPIPE, Errno::ECONNRESET, OpenSSL::SSL::SSLError
      @ended = true
      self
    end

    def self.frame(type, flags, id, payload = "") = [payload.bytesize >> 16, payload.bytesize & 65_535, type, flags, id].pack("CnCCN") << payload

    def frame(...) = write(self.class.frame(...))

    def headers(id, fields, flags = END_STREAM | END_HEADERS) = frame(HEADERS, flags, id, self.class.pack(fields))
    def data(id, bytes, flags = 0) = frame(DATA, flags, id, bytes)
    def reset(id, code = 8) = frame(RST_STREAM, 0, id, [code].pack("N"))
    def window(id, size) = frame(WINDOW_UPDATE, 0, id, [size].pack("N"))

    # @return [Integer, Symbol, nil] the status; :reset; nil if the connection has ended before.
    def status(id)
      read until @statuses[id] || @ended
      @statuses[id]
    end

    # @return [String] of a response that has ended, or of a stream that was reset.
    def body(id)
      read until @over[id] || @ended
      @bodies[id]
    end

    # @return [Boolean] whether the server has ended the connection within so many seconds.
    def ends?(within = @timeout)
      deadline = now + within
      read(deadline - now) while !@ended && now < deadline
      @ended
    end

    # Reads what is there, without waiting.
    def drain
      read(0) while !@ended && @socket.wait_readable(0)
    end

    def close = @socket.close

    # Reads a frame, and acts on it.
    #
    # @return [Frame, nil] nil: the connection has ended, or none came.
    def read(seconds = @timeout)
      head = bytes(9, seconds) or return
      high, low, type, flags, id = head.unpack("CnCCN")
      frame = Frame.new(type, flags, id, bytes((high << 16) | low, @timeout))
      note(frame) if frame.payload
      frame
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def bytes(count, seconds)
      while @buffer.bytesize < count
        return (raise "nothing came for #{seconds} s" if seconds == @timeout) unless @socket.wait_readable([seconds, 0].max)

        @buffer << @socket.readpartial(65_536)
      end
      @buffer.slice!(0, count)
    rescue EOFError, Errno::ECONNRESET, OpenSSL::SSL::SSLError
      @ended = true
      nil
    end

    def note(frame)
      case frame.type
      when HEADERS then @statuses[frame.id] ||= status_in(frame.payload)
      when DATA then @bodies[frame.id] << frame.payload
      when RST_STREAM then @over[frame.id] = @statuses[frame.id] ||= :reset
      when GOAWAY then @goaway = frame.payload.unpack1("@4N")
      when PING then frame(PING, ACK, 0, frame.payload) if frame.flags.nobits?(ACK)
      when SETTINGS then frame(SETTINGS, ACK, 0) if frame.flags.nobits?(ACK)
      end
      @over[frame.id] = true if frame.type <= HEADERS && frame.flags.anybits?(END_STREAM)
    end

    # The first field of a head. Statuses beyond the static table are indexed once they have been sent.
    def status_in(block)
      first = block.getbyte(0)
      first, block = block.getbyte(1), block[1..] if first & 0xe0 == 0x20 # the table's size
      return STATIC_STATUSES.fetch(first & 0x7f, @indexed) if first >= 0x80

      text = block[2, block.getbyte(1) & 0x7f]
      text = digits(text) if block.getbyte(1) >= 0x80
      @indexed = text.to_i
    end

    def digits(coded)
      bits = coded.unpack1("B*")
      Array.new(3) { DIGITS.fetch(bits.slice!(0, DIGITS.key?(bits[0, 5]) ? 5 : 6)) }.join
    end
  end
end
