# frozen_string_literal: true

module Fairlead
  class Compression
    # Says which responses may hold a secret. If such a response also repeats what an attacker has a browser send, the length of its
    # compressed form gives the secret away, guess by guess (BREACH).
    module Secrets
      # Who sends these sees more than everybody does.
      CREDENTIALS = %w[HTTP_COOKIE HTTP_AUTHORIZATION HTTP_X_CSRF_TOKEN SSL_CLIENT_CERT].freeze
      # Rails sends it with every response whose caching the app has not set, so that it says nothing.
      DEFAULT_OF_RAILS = "max-age=0, private, must-revalidate"
      private_constant :CREDENTIALS, :DEFAULT_OF_RAILS

      # @param fields [Hash] the response's, as {Compression} reads them.
      def self.possible?(env, fields)
        CREDENTIALS.any? { |name| env[name] && !env[name].empty? } || fields.key?("set-cookie") ||
          fields.dig("vary", 1).to_s.match?(/\b(?:cookie|authorization)\b|\*/i) || personal?(fields.dig("cache-control", 1).to_s)
      end

      def self.personal?(cache_control) = cache_control != DEFAULT_OF_RAILS && cache_control.match?(/\b(?:private|no-store)\b/i)
      private_class_method :personal?
    end
  end
end
