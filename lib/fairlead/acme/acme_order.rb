# frozen_string_literal: true

module Fairlead
  # Gets one certificate from the authority, by the gem acme-client.
  class ACMEOrder
    # Seconds that the authority may take to look at a challenge, or to issue.
    PATIENCE = 180
    INTERVAL = 1.0
    private_constant :PATIENCE, :INTERVAL

    # @param folder [ACMEFolder]
    # @param directory [String] the URL of the authority.
    # @param email [String, nil]
    def initialize(folder, directory, email)
      @folder = folder
      @email = email
      @client = Acme::Client.new(private_key: folder.account_key, directory:, bad_nonce_retry: 3)
    end

    # @raise [Acme::Client::Error, Error] it cannot be obtained.
    def obtain
      @client.new_account(contact: @email ? "mailto:#{@email}" : [], terms_of_service_agreed: true)
      order = @client.new_order(identifiers: @folder.names)
      order.authorizations.each { |authorization| prove(authorization) unless authorization.status == "valid" }
      key = @folder.new_key
      order.finalize(csr: Acme::Client::CertificateRequest.new(names: @folder.names, private_key: key))
      wait_for("the certificate", order) { order.status == "processing" }
      raise Error, "the order is #{order.status}" unless order.status == "valid"

      @folder.store(key, order.certificate)
    end

    # When the authority wants the certificate renewed (RFC 9773).
    #
    # @return [Range<Time>, nil] nil: it does not say.
    def renewal_window
      window = @client.renewal_info(certificate: @folder.certificate).suggested_window
      Time.parse(window.fetch("start"))..Time.parse(window.fetch("end"))
    rescue Acme::Client::Error, ArgumentError, KeyError, NoMethodError
      nil
    end

    private

    def prove(authorization)
      challenge = authorization.http or raise Error, "the authority offers no HTTP-01 challenge for #{authorization.domain}"
      @folder.publish(challenge.token, challenge.key_authorization)
      challenge.request_validation
      wait_for("the challenge of #{authorization.domain}", challenge) { %w[pending processing].include?(challenge.status) }
      return if challenge.status == "valid"

      raise Error, "#{authorization.domain}: #{challenge.error&.fetch("detail", nil) || "the challenge is #{challenge.status}"}"
    ensure
      @folder.withdraw(challenge.token) if challenge
    end

    def wait_for(what, resource)
      deadline = Clock.now + PATIENCE
      while yield
        raise Error, "the authority took more than #{PATIENCE} s for #{what}" if Clock.now > deadline

        sleep INTERVAL
        resource.reload
      end
    end
  end
end
