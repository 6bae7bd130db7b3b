# frozen_string_literal: true

module Fairlead
  # Gives each request its own sockets on persistent connections of Excon, which keeps them by `Thread.current`. Requests in fibers of one
  # thread would read each other's responses.
  module ExconSockets
    # Call it once the app is loaded, in a process that serves. May be called again.
    def self.establish
      return unless defined?(::Excon::Connection) && !::Excon::Connection.const_defined?(:Thread, false)

      # Excon only calls `Thread.current`.
      ::Excon::Connection.const_set(:Thread, FiberOwner) if Compatibility.fits?(:excon)
    end
  end
end
