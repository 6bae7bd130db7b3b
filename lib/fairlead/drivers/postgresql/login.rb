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
        # The server's answer where encryption was asked for, and what TLS begins with.
        ENCRYPTED = /\A(?:[SG]\z|\x16)/n
        # A password that SASLprep (RFC 4013) leaves as it is.
        PLAIN = /\A[\x20-\x7e]+\z/
        # @!attribute challenge
        #   @return [Array<String>, nil] salt and rounds; nil: the server has named something else later, so it is used no more.
        Key = Struct.new(:challenge, :client, :server)
        private_constant :MOST_ROUNDS, :ROLES, :CHALLENGE, :ENCRYPTED, :PLAIN, :Key

        # Of each role.
        @keys = {}

        class << self
          # @param options [Hash{Symbol => String}] of PG::Connection.connect_start; a key of ours among them is left out.
          # @return [Login, nil] nil where a key is no use.
          def of(options)
            given, password = options.values_at(:scram_client_key, :password)
            if given && keys.each_value.any? { |key| key.client == given }
              options = options.except(:scram_client_key, :scram_server_key)
            end
            plain = password.is_a?(String) && password.ascii_only? && password.match?(PLAIN)
            new(options) if plain && !options[:scram_client_key]
          end

          # @api private
          attr_reader :keys
        end

        def initialize(options)
          @given = options
          # Not the addresses of a host: they come in any order.
          @role = [options[:host] || options[:hostaddr], *options.values_at(:port, :user, :password)]
          @key = keys[@role]
          @key = nil unless @key&.challenge
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
        rescue SystemCallError, IOError
          false # libpq finds it, too
        end

        private

        def keys = self.class.keys

        def unsuited?(bytes, challenge)
          return false if challenge ? challenge == @key.challenge : !bytes.match?(ENCRYPTED) && !cut?(bytes)

          @key.challenge = nil
          @key = nil
          true
        end

        # Its rest could name anything.
        def cut?(bytes) = bytes.start_with?("R") && (bytes.bytesize < 5 || bytes.bytesize <= bytes.unpack1("@1N"))

        def learn(challenge)
          return false if challenge.nil? || keys.key?(@role) || !challenge.last.to_i.between?(1, MOST_ROUNDS)

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
