# frozen_string_literal: true

module Fairlead
  # Fiber-locals that a serving fiber keeps from request to request, because gems keep open connections there
  # (`Thread.current[:x] ||= Client.new`). Otherwise each request would open connections of its own, and leave them to the
  # garbage collector. Serving fibers are used again, the last one first, so that there are as many clients as requests at once.
  #
  # A client that is kept must know nothing of the request that made it: what belongs to that request is taken out first.
  module KeptLocals
    # Prepended to Net::HTTP. Closes a connection on which a deadline, Timeout or a cancelled task has cut an exchange short:
    # Net::HTTP does so only after a StandardError, and the next exchange would read this one's response.
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

    # key => takes out all but connections
    TABLE = { api_requestor__internal_use_only: STRIPE, stripe_client__internal_use_only: STRIPE }.freeze
    private_constant :STRIPE, :TABLE

    # Called by the server once the app is loaded. May be called again.
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
