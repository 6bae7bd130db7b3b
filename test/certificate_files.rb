# frozen_string_literal: true

require "openssl"

module Fairlead
  # Certificates for tests, by an authority of their own.
  class CertificateFiles
    def initialize
      @authority = issue("Test authority", extensions: [["basicConstraints", "CA:TRUE", true], ["keyUsage", "keyCertSign, cRLSign", true]])
    end

    # @return [String] in PEM: what clients trust.
    def authority = @authority.first.to_pem

    # @param names [Array<String>] of hosts.
    # @param options [Hash] see #issue.
    # @return [Array(String, String)] a certificate and its key in PEM.
    def for(*names, **options)
      issue(names.first, extensions: [["subjectAltName", names.map { |name| "DNS:#{name}" }.join(",")]], issuer: @authority, **options)
        .map { |part| part.respond_to?(:private_to_pem) ? part.private_to_pem : part.to_pem }
    end

    # @param key [OpenSSL::PKey] the public key that the certificate is for.
    # @return [String] a certificate in PEM.
    def for_key(key, *names, **options)
      issue(names.first, extensions: [["subjectAltName", names.map { |name| "DNS:#{name}" }.join(",")]], issuer: @authority, key:, **options)
        .first.to_pem
    end

    # @return [OpenSSL::X509::Store]
    def store = OpenSSL::X509::Store.new.tap { |store| store.add_cert(@authority.first) }

    private

    def issue(name, extensions:, issuer: nil, from: Time.now - 60, to: Time.now + 86_400, key: OpenSSL::PKey::EC.generate("prime256v1"))
      certificate = OpenSSL::X509::Certificate.new
      certificate.version = 2
      certificate.serial = (@serial = @serial.to_i + 1)
      certificate.subject = OpenSSL::X509::Name.new([["CN", name]])
      certificate.issuer = issuer ? issuer.first.subject : certificate.subject
      certificate.not_before = from
      certificate.not_after = to
      certificate.public_key = key
      factory = OpenSSL::X509::ExtensionFactory.new(issuer&.first || certificate, certificate)
      extensions.each { |extension| certificate.add_extension(factory.create_extension(*extension)) }
      certificate.sign(issuer ? issuer.last : key, "SHA256")
      [certificate, key]
    end
  end
end
