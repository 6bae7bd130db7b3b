# frozen_string_literal: true

require "socket"

module Fairlead
  # A request that a serving fiber has taken. The binding's request.c and response.c hold most of it. It is its own `rack.hijack`.
  class Request
    # A field's name, and a value that does not end its line (RFC 9110, 5).
    NAME = /\A[!#$%&'*+.^_`|~0-9A-Za-z-]+\z/n
    VALUE = /\A[^\0-\x08\x0a-\x1f\x7f]*\z/n
    # An interim response has no body to frame, and says nothing of its connection (RFC 9110, 8.6; RFC 9112, 6.1).
    NO_HINTS = /\A(?:content-length|transfer-encoding|connection|keep-alive|upgrade|trailer)\z/i
    private_constant :NAME, :VALUE, :NO_HINTS

    # What it has waited for longest.
    #
    # @api private
    # @return [WaitNotes]
    def notes = @notes ||= WaitNotes.new

    # @api private
    # @return [WaitNotes, nil] nil: there are none.
    def notes? = @notes

    # Seconds for which it has held connections that it has given back.
    #
    # @api private
    # @return [Float]
    def held = @held || 0.0
    attr_writer :held

    # `rack.hijack`: from now on the app talks to the client itself. Fairlead ignores the response that it returns.
    #
    # @return [TCPSocket, UNIXSocket] the app's to close. Bytes that Fairlead has read ahead come first.
    # @raise [ClientGone]
    # @raise [IOError] once a response has begun, or within a chunked body.
    def call = env["rack.hijack_io"] ||= take_over

    # The socket of the client, for good.
    #
    # @api private
    # @return [TCPSocket, UNIXSocket]
    def take_over
      descriptor, unix, unsent, ahead = detach_socket
      socket = (unix ? UNIXSocket : TCPSocket).for_fd(descriptor)
      socket.write(unsent) unless unsent.empty?
      socket.ungetbyte(ahead) unless ahead.empty?
      socket
    end

    # `rack.early_hints`: sends 103 before the response (RFC 8297). A client of HTTP/1.0 gets none, and a field that
    # would break the head is left out: a hint must not fail its response.
    #
    # @param headers [Hash{String => String, Array<String>}]
    def early_hints(headers)
      lines = headers.flat_map do |name, values|
        next [] if !name.to_s.b.match?(NAME) || name.to_s.match?(NO_HINTS)

        Array(values).flat_map { |value| value.to_s.b.split("\n") }.grep(VALUE).map { |value| "#{name}: #{value}\r\n".b }
      end
      inform(103, lines.join) unless lines.empty?
    end
  end
end
