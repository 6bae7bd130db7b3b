# frozen_string_literal: true

module Fairlead
  # The certificate for https://localhost in development, by the gem localhost, which makes one and keeps it in the user's home.
  module LocalhostCertificate
    ADDRESS = %r{\Ahttps://localhost(?:[:/?]|\z)}
    private_constant :ADDRESS

    # @param listeners [Array<Listener>] with https.
    # @return [Boolean] whether it is for all of them.
    def self.for?(listeners) = listeners.all? { |listener| ADDRESS.match?(listener.asked.to_s) }

    # @return [Array(String, String)] the files of the certificate and its key.
    # @raise [LoadError] the gem is missing.
    def self.files
      require "localhost"
      authority = Localhost::Authority.fetch
      [authority.certificate_path, authority.key_path]
    end
  end
end
