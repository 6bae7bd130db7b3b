# frozen_string_literal: true

require "rbconfig"
require "socket"

module Fairlead
  # A slow network between a client and a database: a process of its own, that passes on what it reads a while later.
  #
  #   network = SlowNetwork.new(5432, delay: 0.1)      # each piece, in either direction, comes 0.1 s later
  #   network = SlowNetwork.new(5432, rate: 20_000)    # bytes a second, in either direction
  #   network = SlowNetwork.new(5432, hesitation: 0.3) # for so many seconds each connection is kept waiting first
  #   network.port                                     # where clients connect
  #   network.close
  #
  # With `postgresql_tls`, it also speaks TLS to the client, as PostgreSQL would: tests need no server that does.
  class SlowNetwork
    attr_reader :port

    def initialize(target, delay: 0, rate: 0, hesitation: 0, postgresql_tls: false)
      options = [target, delay, rate, hesitation, postgresql_tls].map(&:to_s)
      @process = IO.popen([RbConfig.ruby, __FILE__, *options], "r+", err: File::NULL)
      @port = Integer(@process.gets)
    end

    # What the database sends stays on its way until {#go}. Both return once it is so.
    def hold = tell("hold")

    def go = tell("go")

    def close
      Process.kill(:KILL, @process.pid)
      @process.close
    end

    private

    # No other fiber of the caller's goes on meanwhile.
    def tell(word)
      Fiber.blocking do
        @process.puts(word)
        @process.gets
      end
    end

    # In the process.
    class Relay
      PIECE = 65_536
      # What the system takes in of what is read at a rate.
      BUFFER = 4 * PIECE

      def initialize(target, delay, rate, hesitation, tls)
        @target, @delay, @rate, @hesitation = target, delay, rate, hesitation
        @tls = tls_context if tls
      end

      def serve
        server = TCPServer.new("127.0.0.1", 0)
        server.setsockopt(:SOCKET, :RCVBUF, BUFFER) if @rate.positive?
        $stdout.puts(server.local_address.ip_port)
        $stdout.flush
        Thread.new { obey }
        loop { Thread.new(server.accept) { |client| relay(client) } }
      end

      private

      def obey
        while (word = $stdin.gets)
          @held = word == "hold\n"
          $stdout.puts(word)
          $stdout.flush
        end
        exit! # whoever started it has ended
      end

      def relay(client)
        sleep(@hesitation)
        client = negotiate(client) if @tls
        database = TCPSocket.new("127.0.0.1", @target)
        ways = [Thread.new { pass(client, database) }, Thread.new { pass(database, client) { sleep(0.001) while @held } }]
        ways.each(&:join)
      rescue SystemCallError, IOError
        nil
      ensure
        [client, database].compact.each(&:close)
      end

      def pass(from, to)
        pieces = @rate.positive? ? Thread::SizedQueue.new(1) : Thread::Queue.new
        reader = Thread.new do
          loop do
            bytes = from.readpartial(@rate.positive? ? [@rate / 20, 1].max : PIECE)
            pieces << [now + @delay, bytes]
          end
        rescue SystemCallError, IOError
          pieces << [now + @delay, nil]
        end
        while (due, bytes = pieces.pop) && bytes
          sleep([due - now, 0].max)
          yield if block_given?
          to.write(bytes)
          sleep(bytes.bytesize.fdiv(@rate)) if @rate.positive?
        end
        to.respond_to?(:close_write) ? to.close_write : to.close
      rescue SystemCallError, IOError
        nil
      ensure
        reader&.kill
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # What PostgreSQL is asked before the handshake, and its "yes".
      def negotiate(client)
        client.read(8)
        sleep(@delay)
        client.write("S")
        sleep(@delay)
        OpenSSL::SSL::SSLSocket.new(client, @tls).tap { |socket| socket.sync_close = true }.accept
      end

      def tls_context
        require "openssl"
        key = OpenSSL::PKey::EC.generate("prime256v1")
        certificate = OpenSSL::X509::Certificate.new
        certificate.version = 2
        certificate.serial = 1
        certificate.subject = certificate.issuer = OpenSSL::X509::Name.parse("/CN=127.0.0.1")
        certificate.public_key = key
        certificate.not_before = Time.now - 60
        certificate.not_after = Time.now + 86_400
        certificate.sign(key, "SHA256")
        OpenSSL::SSL::SSLContext.new.tap { |context| context.add_certificate(certificate, key) }
      end
    end
  end
end

if $PROGRAM_NAME == __FILE__
  target, delay, rate, hesitation, tls = ARGV
  Fairlead::SlowNetwork::Relay.new(Integer(target), Float(delay), Integer(rate), Float(hesitation), tls == "true").serve
end
