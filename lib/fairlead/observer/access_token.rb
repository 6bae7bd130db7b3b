# frozen_string_literal: true

module Fairlead
  # Who may read the metrics: whoever sends the token as `Authorization: Bearer …`, or as the password of `Authorization: Basic …`,
  # for which a browser asks its user.
  class AccessToken
    # The value of `metrics_token` with which anybody may read.
    NONE = "none"
    CHALLENGE = "Bearer, Basic realm=\"Fairlead\""

    # @raise [ConfigurationError] if anybody could read the metrics, and nobody has said so.
    def self.check(configuration)
      at = configuration.source(:metrics)
      if configuration.metrics_token == ""
        raise ConfigurationError, "#{configuration.source(:metrics_token)}: `metrics_token` is empty. Remove it, or set a secret."
      end
      return if configuration.metrics.nil? || configuration.metrics_token || private?(configuration.metrics_address)

      raise ConfigurationError, "#{at}: whoever reaches #{configuration.metrics} could read the metrics. Set `metrics_token` " \
                                "(FAIRLEAD_METRICS_TOKEN), bind 127.0.0.1, or set the token to \"#{NONE}\" if nobody else gets there."
    end

    # @param uri [String, nil] nil: the app's addresses.
    def self.private?(uri)
      return false if uri.nil?

      address = Listener::Address.parse(uri)
      address.path || address.host == "localhost" || Addrinfo.tcp(address.host, 0).then { |one| one.ipv4_loopback? || one.ipv6_loopback? }
    rescue SocketError
      false
    end
    private_class_method :private?

    # @param token [String, nil] nil or {NONE}: anybody may read.
    def initialize(token)
      @token = token unless token == NONE
    end

    # @param header [String, nil] the field Authorization.
    # @return [Boolean]
    def allows?(header)
      @token.nil? || same?(given(header.to_s))
    end

    private

    # How long this takes tells nothing of the token.
    def same?(given)
      difference = given.bytesize ^ @token.bytesize
      given.each_byte.with_index { |byte, index| difference |= byte ^ @token.getbyte(index % @token.bytesize) }
      difference.zero?
    end

    def given(header)
      scheme, value = header.b.split(" ", 2)
      case scheme.to_s.downcase
      when "bearer" then value.to_s
      when "basic" then value.to_s.unpack1("m").split(":", 2).last.to_s
      else ""
      end
    end
  end
end
