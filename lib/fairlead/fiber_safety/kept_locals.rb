# frozen_string_literal: true

module Fairlead
  # Fiber-locals that a serving fiber keeps from request to request, since gems keep open connections there
  # (`Thread.current[:x] ||= Client.new`). Without them each request would open connections of its own, and leave them to the
  # collector. Serving fibers are used again, the last one first: there are as many clients as requests at once.
  #
  # What is kept must be a client that knows nothing of the request that made it. What does is taken out first.
  module KeptLocals
    # Of Net::HTTP: a connection on which an exchange was cut short (by a deadline, Timeout, a task that was cancelled) is
    # closed. Net::HTTP does so itself after a StandardError only, and the next exchange would read this one's answer.
    module WholeExchanges
      private

      def transport_request(*)
        whole = false
        super.tap { whole = true }
      ensure
        @socket&.close unless whole
      end
    end

    # Stripe's context of a thread: its connections, and what belongs to a call.
    STRIPE = lambda do |context|
      %i[active_requestor= default_requestor= active_client= default_client= last_responses=].each do |name|
        context.public_send(name, nil) if context.respond_to?(name)
      end
    end

    # key => what takes out all but connections
    TABLE = { api_requestor__internal_use_only: STRIPE, stripe_client__internal_use_only: STRIPE }.freeze
    private_constant :STRIPE, :TABLE

    # To be called by whoever serves, once the app is loaded. May be called again.
    #
    # @return [void]
    def self.establish
      @whole ||= defined?(::Net::HTTP) && ::Net::HTTP.prepend(WholeExchanges) && true
    end

    # @param key [Symbol] of a fiber-local.
    # @return [Boolean] whether it stays.
    def self.keep?(key, value)
      strip = TABLE[key] or return false
      return false unless establish # from the next request on

      strip.call(value)
      true
    end
  end
end
