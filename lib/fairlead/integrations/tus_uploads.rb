# frozen_string_literal: true

module Fairlead
  # Has tus-server keep what has arrived of an upload that breaks off. It has appended that to its file, but knows by the name of
  # Unicorn's exception only that a client has gone: with any other it would not note the offset, and append the same bytes again.
  module TusUploads
    # Call it once the app is loaded, in a process that serves. May be called again.
    def self.establish
      return if !defined?(::Tus::Input) || ::Tus::Input.include?(self)

      ::Tus::Input.prepend(self) if Compatibility.fits?(:tus_server)
    end

    # The upload ends here, for now.
    def read(length = nil, buffer = nil)
      super
    rescue ClientGone, ServerStopping, RequestTimeout
      buffer = buffer ? buffer.clear : +""
      buffer unless length
    end
  end
end
