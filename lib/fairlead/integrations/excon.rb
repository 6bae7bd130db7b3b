# frozen_string_literal: true

module Fairlead
  # Excon keeps the sockets of a persistent connection by `Thread.current`: requests in fibers of one thread would write to the
  # same socket, and read each other's answers.
  module ExconSockets
    # To be called by whoever serves, once the app is loaded. May be called again.
    #
    # @return [void]
    def self.establish
      return unless defined?(::Excon::Connection) && !::Excon::Connection.const_defined?(:Thread, false)

      # It asks nothing of the constant but `current`.
      ::Excon::Connection.const_set(:Thread, FiberOwner) if Compatibility.fits?(:excon)
    end
  end
end
