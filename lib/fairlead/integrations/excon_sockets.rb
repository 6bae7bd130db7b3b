# frozen_string_literal: true

module Fairlead
  # Gives each request its own sockets on persistent connections of Excon, which keeps them by `Thread.current`. Requests in fibers of one
  # thread would read each other's responses.
  module ExconSockets
    # Call it once the app is loaded, in a process that serves. May be called again.
    def self.establish
      return unless defined?(::Excon::Connection) && !::Excon::Connection.const_defined?(:Thread, false)

      return unless Compatibility.fits?(:excon)

      # Excon only calls `Thread.current`.
      ::Excon::Connection.const_set(:Thread, FiberOwner)
      Compatibility.works?(:excon) { apart? }
    end

    def self.apart?
      connection = ::Excon.new("http://localhost", persistent: true, thread_safe_sockets: true)
      own, others = Array.new(2) { Integrations.in_another_request { connection.send(:sockets) } }
      !own.equal?(others)
    rescue ::Excon::Error, ::ArgumentError
      true # the app's defaults do not go with this address
    end
    private_class_method :apart?
  end
end
