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

    # Stripe's contexts of a thread.
    KEYS = %i[api_requestor__internal_use_only stripe_client__internal_use_only].freeze
    # What of a context belongs to a call.
    OF_CALLS = %i[active_requestor= default_requestor= active_client= default_client= last_responses=].freeze
    # What remains of it.
    CONNECTIONS = %i[@default_connection_manager @default_connection_managers].freeze
    private_constant :KEYS, :OF_CALLS, :CONNECTIONS

    # Called by the server once the app is loaded. May be called again.
    #
    # @return [Boolean] whether connections may be kept.
    def self.establish
      @whole ||= defined?(::Net::HTTP) && Compatibility.fits?(:net_http) && ::Net::HTTP.prepend(WholeExchanges) && true
    end

    # @param key [Symbol] of a fiber-local.
    # @return [Boolean] whether it stays.
    def self.keep?(key, value)
      return false unless KEYS.include?(key) && establish # from the next request on

      OF_CALLS.each { |name| value.public_send(name, nil) if value.respond_to?(name) }
      Compatibility.works?(:stripe) { bare?(value) } && bare?(value)
    end

    # @return [Boolean] whether the context has nothing but connections.
    def self.bare?(context)
      context.instance_variables.all? { |name| CONNECTIONS.include?(name) || context.instance_variable_get(name).nil? }
    end
    private_class_method :bare?
  end
end
