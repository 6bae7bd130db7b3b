# frozen_string_literal: true

require_relative "certificate_files"
require_relative "http_client"

module Fairlead
  # The socket of a client over TLS, for {HTTPClient}. It reads nothing ahead that its user could not see.
  class TLSSocket
    attr_reader :ssl

    # @param settings [Hash] of the context: `ca:` (a store), `versions:`, `certificate:` and so on.
    def initialize(socket, host: "localhost", session: nil, &settings)
      socket.setsockopt(:TCP, :NODELAY, 1)
      context = OpenSSL::SSL::SSLContext.new
      settings&.call(context)
      @ssl = OpenSSL::SSL::SSLSocket.new(socket, context)
      @ssl.hostname = host
      @ssl.sync_close = true
      @ssl.session = session if session
      @ssl.connect
    rescue StandardError
      socket.close
      raise
    end

    def write(bytes) = @ssl.write(bytes)

    # Record by record: SSLSocket's own buffer would hide from {#wait_readable} what it holds.
    def readpartial(size) = @ssl.sysread(size)

    def wait_readable(seconds) = @ssl.pending.positive? || @ssl.io.wait_readable(seconds)

    # Says that no more comes, and still reads.
    def close_write
      @ssl.__send__(:stop)
    end

    def close = @ssl.close

    def closed? = @ssl.closed?

    def setsockopt(...) = @ssl.io.setsockopt(...)
  end

  # For tests that speak HTTPS. The server finds its certificate in cert.pem, key.pem.
  module SpeaksHTTPS
    def self.certificates = @certificates ||= CertificateFiles.new

    # The certificate CN=client.test, by the authority of all.
    def self.show_certificate(context)
      @shown ||= certificates.for("client.test")
      context.cert, context.key = OpenSSL::X509::Certificate.new(@shown.first), OpenSSL::PKey.read(@shown.last)
    end

    # The files, and flags, of a server at an https address for localhost.
    FILES = certificates.for("localhost").then { |certificate, key| { "cert.pem" => certificate, "key.pem" => key } }.freeze
    FLAGS = ["--bind", "https://127.0.0.1:0", "--certificate", "cert.pem", "--certificate-key", "key.pem"].freeze

    # @return [TCPSocket] a connection to the https address of a server, on which nothing is encrypted yet.
    def connect_to_https(server)
      address = server.addresses.find { |address| address.start_with?("https:") }
      TCPSocket.new("127.0.0.1", URI(address).port)
    end

    # A new connection to the server under test; it is closed with the test.
    #
    # @yieldparam context [OpenSSL::SSL::SSLContext] already trusts the certificates of tests.
    def tls_client(to: server, host: "localhost", session: nil, **options)
      socket = TLSSocket.new(connect_to_https(to), host:, session:) do |context|
        context.set_params(cert_store: SpeaksHTTPS.certificates.store)
        yield context if block_given?
      end
      client = HTTPClient.new(socket, **options)
      (@tls_clients ||= []) << client
      client
    end

    def teardown
      (@tls_clients || []).each { |client| client.close unless client.socket.closed? }
      super
    end
  end
end
