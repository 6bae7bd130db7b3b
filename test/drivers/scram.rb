# frozen_string_literal: true

require "openssl"

module Fairlead
  # What PostgreSQL keeps of a password (SCRAM, RFC 5802).
  module Scram
    # @return [String] as CREATE ROLE takes it.
    def self.secret(password, salt:, rounds:)
      key = OpenSSL::KDF.pbkdf2_hmac(password, salt:, iterations: rounds, length: 32, hash: "SHA256")
      client, server = ["Client Key", "Server Key"].map { |purpose| OpenSSL::HMAC.digest("SHA256", key, purpose) }
      salt, stored, server = [salt, OpenSSL::Digest.digest("SHA256", client), server].map { |part| [part].pack("m0") }
      "SCRAM-SHA-256$#{rounds}:#{salt}$#{stored}:#{server}"
    end
  end
end
