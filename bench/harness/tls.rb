# frozen_string_literal: true

require "fileutils"
require "openssl"
require "socket"

module Bench
  # What a server needs to serve TLS, and how it is spoken to: one certificate for all of them, made once.
  class TLS
    # Thruster's certificates are found by the name that the client asks for, which wrk takes from the address.
    NAME = "127.0.0.1"
    DAYS = 365
    private_constant :DAYS

    # @return [OpenSSL::SSL::SSLSocket] over a new connection; close closes both.
    def self.connect(port)
      socket = OpenSSL::SSL::SSLSocket.new(TCPSocket.new(NAME, port), @context ||= OpenSSL::SSL::SSLContext.new)
      socket.sync_close = true
      socket.hostname = NAME
      socket.connect
    end

    # @return [String]
    attr_reader :folder

    # @param folder [String] where certificate and key are kept.
    def initialize(folder)
      @folder = folder
    end

    def certificate = File.join(@folder, "certificate.pem")

    # In PKCS #8, the one format that all servers read.
    def key = File.join(@folder, "pkcs8.pem")

    # Makes both, unless they are there and valid for a while.
    def prepare
      return self if valid?

      FileUtils.mkdir_p(@folder)
      pair = OpenSSL::PKey::EC.generate("prime256v1")
      signed = sign(pair)
      File.write(key, pair.private_to_pem, perm: 0o600)
      File.write(certificate, signed.to_pem)
      # As Go's autocert keeps them, for Thruster.
      File.write(File.join(@folder, NAME), File.read(key) + signed.to_pem, perm: 0o600)
      self
    end

    private

    def valid?
      File.exist?(key) && OpenSSL::X509::Certificate.new(File.read(certificate)).not_after > Time.now + 86_400
    rescue Errno::ENOENT
      false
    end

    def sign(pair)
      certificate = OpenSSL::X509::Certificate.new
      certificate.version = 2
      certificate.serial = 1
      certificate.subject = certificate.issuer = OpenSSL::X509::Name.new([["CN", NAME]])
      certificate.not_before = Time.now - 3600
      certificate.not_after = Time.now + (DAYS * 86_400)
      certificate.public_key = pair
      certificate.add_extension(OpenSSL::X509::ExtensionFactory.new.create_extension("subjectAltName", "IP:#{NAME}"))
      certificate.sign(pair, "SHA256")
    end
  end
end
