# frozen_string_literal: true

module Fairlead
  # Clients that mean harm, or might as well. Each offence says what one connection sends at each tick, and how long it
  # may last.
  module Hostile
    # What an offender may do to its connection at a tick; what is written goes as far as it is taken.
    class Offender
      attr_reader :number, :ticks

      def initialize(socket, number)
        @socket = socket
        @number = number
        @ticks = 0
      end

      def tick(offence)
        offence.act.call(self)
        @ticks += 1
      end

      def first? = @ticks.zero?

      def write(bytes)
        @socket.write_nonblock(bytes, exception: false)
      end

      # The next byte of what is repeated for ever, from that tick on.
      def dribble(bytes, from: 0) = write(bytes[(@ticks - from) % bytes.size])

      def read(most = 65_536) = @socket.read_nonblock(most, exception: false)

      def end_its_side = @socket.close_write

      # The server sees a reset.
      def reset
        @socket.setsockopt(:SOCKET, :LINGER, [1, 0].pack("ii"))
        @socket.close
      end
    end

    # @!attribute lasts [Symbol, nil] the deadline by which the server ends it: an option, or :at_once; nil: it is no
    #   business of the server's when it ends.
    # @!attribute reads [Boolean] whether it takes what the server sends.
    # @!attribute again [Boolean] whether another one comes when one is gone.
    # @!attribute flood [Boolean] whether a few of them keep a server busy.
    # @!attribute answers [Array<Integer>] one of which each gets; empty: none is needed.
    Offence = Data.define(:name, :lasts, :reads, :again, :flood, :answers, :act) do
      def initialize(name:, act:, lasts: nil, reads: true, again: false, flood: false, answers: []) = super
    end

    HEAD = "GET / HTTP/1.1\r\nHost: a\r\n"
    UPLOAD = "PUT /upload HTTP/1.1\r\nHost: a\r\n"
    CHUNKED = "#{UPLOAD}Transfer-Encoding: chunked\r\n\r\n".freeze
    # As far as a request comes before its client ends its side, or is gone.
    STAGES = [
      "", "GE", HEAD, "#{UPLOAD}Content-Length: 100000\r\n\r\n#{"x" * 500}", "#{CHUNKED}5\r\nhel", "#{HEAD}\r\n",
      "GET /sleep HTTP/1.1\r\nHost: a\r\n\r\n", "GET /large HTTP/1.1\r\nHost: a\r\n\r\n", "#{HEAD}\r\n" * 5
    ].freeze
    private_constant :HEAD, :UPLOAD, :CHUNKED, :STAGES

    def self.offence(name, **, &act) = Offence.new(name:, act:, **)
    private_class_method :offence

    # What a bomb sends at each tick: more than any limit within a few.
    LOAD = 65_536
    private_constant :LOAD

    OFFENCES = [
      offence("slow heads", lasts: :head_timeout, answers: [408]) { |one| one.dribble("#{HEAD}X-Slow: #{"x" * 9000}") },
      offence("slow bodies", lasts: :body_timeout, answers: [408]) do |one|
        one.first? ? one.write("#{UPLOAD}Content-Length: 100000\r\n\r\n") : one.write("x")
      end,
      offence("slow chunked bodies", lasts: :body_timeout, answers: [408]) do |one|
        one.first? ? one.write(CHUNKED) : one.dribble("1\r\nx\r\n", from: 1)
      end,
      offence("bodies that stop", lasts: :body_timeout, answers: [408]) do |one|
        one.write("#{UPLOAD}Content-Length: 250000\r\n\r\n#{"x" * 200_000}") if one.first?
      end,
      offence("slow readers", lasts: :write_timeout, reads: false) do |one|
        one.first? ? one.write("GET /large HTTP/1.1\r\nHost: a\r\n\r\n") : one.read(1)
      end,
      offence("clients that read nothing", lasts: :write_timeout, reads: false) do |one|
        one.write("GET /huge HTTP/1.1\r\nHost: a\r\n\r\n") if one.first?
      end,
      offence("connections that are left", lasts: :idle_timeout) { |_| nil },
      offence("connections that are left after a request", lasts: :idle_timeout, answers: [200]) do |one|
        one.write("#{HEAD}\r\n") if one.first?
      end,
      offence("sides that are ended at every stage", lasts: :at_once) do |one|
        (one.write(STAGES[one.number % STAGES.size]) and one.end_its_side) if one.first?
      end,
      offence("resets at every stage", again: true) do |one|
        one.first? ? one.write(STAGES[one.number % STAGES.size]) : one.reset
      end,
      offence("header bombs", lasts: :at_once, answers: [431]) do |one|
        one.write(HEAD) if one.first?
        one.write("X-Bomb: #{"x" * 50}\r\n" * (LOAD / 60))
      end,
      offence("endless lines", lasts: :at_once, answers: [414]) { |one| one.write(one.first? ? "GET /" : "x" * LOAD) },
      offence("endless fields", lasts: :at_once, answers: [431]) do |one|
        one.write(one.first? ? "#{HEAD}X-Bomb: " : "x" * LOAD)
      end,
      offence("endless chunk extensions", lasts: :at_once, answers: [400]) do |one|
        one.write(one.first? ? "#{CHUNKED}5" : ";a=#{"x" * 500}" * 32)
      end,
      offence("chunks of little more than extensions", lasts: :at_once, answers: [400]) do |one|
        one.write(one.first? ? CHUNKED : "1;a=#{"x" * 1000}\r\nx\r\n" * 16)
      end,
      offence("endless trailers", lasts: :at_once, answers: [400]) do |one|
        one.write(one.first? ? "#{CHUNKED}0\r\n" : "X-Trailer: #{"x" * 500}\r\n" * 32)
      end,
      offence("pipelined requests without end, and nobody who reads the answers", lasts: :write_timeout, reads: false,
        flood: true) do |one|
        one.write("GET /large HTTP/1.1\r\nHost: a\r\n\r\n" * 1000)
      end,
      offence("pipelined requests without end", flood: true) { |one| one.write("#{HEAD}\r\n" * 20) },
      offence("empty lines without end", lasts: :at_once, answers: [400]) { |one| one.write("\r\n" * 100) },
      offence("TLS", lasts: :at_once, answers: [400]) { |one| one.write("\x16\x03\x01\x02\x00\x01".b) if one.first? },
    ].freeze
  end
end
