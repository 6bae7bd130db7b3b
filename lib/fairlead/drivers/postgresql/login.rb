# frozen_string_literal: true

require "openssl"
require "socket"

module Fairlead
  module Drivers
    module PostgreSQL
      # Of a password libpq computes a key for each connection, which takes milliseconds (SCRAM, RFC 5802). It depends on the
      # role alone: on its password, and on the salt and the rounds that the server names. So it is computed once, and
      # later connections are given it.
      #
      # What the server names is read before libpq does. If it is something else than the key was made with, nothing is
      # answered, and the connection begins again without a key: the server sees no wrong proof. Over TLS it cannot be read:
      # there libpq computes each time.
      class Login
        # A key of more rounds is left to libpq, which needs no lock of Ruby's for it.
        MOST_ROUNDS = 10_000
        # So many roles are remembered: passwords that change all the time must not fill the memory.
        ROLES = 64
        # AuthenticationSASLContinue, with what SCRAM's server says first: a nonce, salt and rounds.
        CHALLENGE = /\AR.{4}\0\0\0\x0br=[^,]+,s=([A-Za-z0-9+\/=]+),i=(\d+)/mn
        # The server's answer where encryption was asked for.
        ENCRYPTED = %w[S G].freeze
        # A password that SASLprep (RFC 4013) leaves as it is.
        PLAIN = /\A[\x20-\x7e]+\z/
        # @!attribute challenge
        #   @return [Array<String>] salt and rounds.
        Key = Struct.new(:challenge, :client, :server)
        private_constant :MOST_ROUNDS, :ROLES, :CHALLENGE, :ENCRYPTED, :PLAIN, :Key

        # The key of each role; false where the server has named something else later.
        @keys = {}

        class << self
          # @param options [Hash{Symbol => String}] of PG::Connection.connect_start.
          # @return [Login, nil] nil where a key is no use.
          def of(options) = (new(options) if PLAIN.match?(options[:password]) && !options.key?(:scram_client_key))

          # @api private
          attr_reader :keys
        end

        def initialize(options)
          @given = options
          @role = options.values_at(:host, :hostaddr, :port, :user, :password)
          @key = keys[@role] || nil
        end

        # @return [Hash{Symbol => String}] those of the connection, with the key, if there is one.
        def options = @key ? @given.merge(scram_client_key: @key.client, scram_server_key: @key.server) : @given

        # To be asked before libpq reads.
        #
        # @param socket [BasicSocket]
        # @return [Boolean] whether the connection must begin again: without the key, then.
        def refused?(socket)
          bytes = socket.recv_nonblock(512, ::Socket::MSG_PEEK, exception: false)
          return false unless bytes.is_a?(String)

          challenge = bytes.match(CHALLENGE)&.captures
          @key ? unsuited?(bytes, challenge) : learn(challenge)
        rescue SystemCallError
          false # libpq finds it, too
        end

        private

        def keys = self.class.keys

        def unsuited?(bytes, challenge)
          return false if challenge ? challenge == @key.challenge : !ENCRYPTED.include?(bytes)

          keys[@role] = false
          @key = nil
          true
        end

        def learn(challenge)
          return false if challenge.nil? || keys.key?(@role) || challenge.last.to_i > MOST_ROUNDS

          salted = OpenSSL::KDF.pbkdf2_hmac(@given[:password], salt: challenge.first.unpack1("m"),
            iterations: challenge.last.to_i, length: 32, hash: "SHA256")
          client, server = ["Client Key", "Server Key"].map { |text| [OpenSSL::HMAC.digest("SHA256", salted, text)].pack("m0") }
          keys.shift if keys.size >= ROLES
          keys[@role] = Key.new(challenge, client, server)
          false
        end
      end
    end
  end
end
